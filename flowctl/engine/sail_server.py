"""The child process of :mod:`flowctl.engine.sail`: a Sail server that prints its port, and ends with its parent."""

from __future__ import annotations

import importlib
import os
import sys
from contextlib import suppress

#: Modules that Sail, and flowctl's functions in it, import before their first row.
_FIRST = ("pandas", "pyspark.worker", "pyarrow.csv", "psycopg")


def main() -> None:
    from pysail.spark import SparkConnectServer

    # Before Sail starts threads: if two import parts of one package at the same time, one finds it half initialized,
    # and Sail then silently assumes pyspark 3.5. Meanwhile, the run imports its own modules.
    for name in _FIRST:
        with suppress(ImportError):
            importlib.import_module(name)
    server = SparkConnectServer("127.0.0.1", 0)
    server.start(background=True)
    _, port = server.listening_address
    print(port, flush=True)
    sys.stdin.buffer.read()  # until the pipe closes: at the run's end, or when it is killed
    os._exit(0)  # Sail's own shutdown waits for queries whose results are no longer needed


if __name__ == "__main__":
    main()
