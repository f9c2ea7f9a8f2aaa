"""The process of :mod:`flowctl.engine.sail`: a Sail server that prints its port, and ends with its parent."""

from __future__ import annotations

import importlib
import os
import sys
from contextlib import suppress

#: What Sail and flowctl's functions in it import before their first row.
_FIRST = ("pandas", "pyspark.worker", "pyarrow.csv", "psycopg")


def main() -> None:
    from pysail.spark import SparkConnectServer

    # Before Sail has threads: of two that import parts of one package at once, one finds it half initialized. Sail then
    # takes pyspark for 3.5, and says nothing. The run imports its own meanwhile.
    for name in _FIRST:
        with suppress(ImportError):
            importlib.import_module(name)
    server = SparkConnectServer("127.0.0.1", 0)
    server.start(background=True)
    _, port = server.listening_address
    print(port, flush=True)
    sys.stdin.buffer.read()  # until the pipe closes: at the run's end, or when it is killed
    os._exit(0)  # Sail's own way out waits for queries that nobody wants any more


if __name__ == "__main__":
    main()
