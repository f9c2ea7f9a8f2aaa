"""The process of :mod:`flowctl.engine.sail`: a Sail server that prints its port, and ends with its parent."""

from __future__ import annotations

import importlib
import os
import sys
from contextlib import suppress

#: What Sail and flowctl's functions in it import before their first row.
_FIRST = ("pandas", "pyspark.sql.pandas.types", "pyarrow.csv", "psycopg")


def main() -> None:
    from pysail.spark import SparkConnectServer

    server = SparkConnectServer("127.0.0.1", 0)
    server.start(background=True)
    _, port = server.listening_address
    print(port, flush=True)
    for name in _FIRST:  # while the run imports its own; otherwise the first table waits for it
        with suppress(ImportError):
            importlib.import_module(name)
    sys.stdin.buffer.read()  # until the pipe closes: at the run's end, or when it is killed
    os._exit(0)  # Sail's own way out waits for queries that nobody wants any more


if __name__ == "__main__":
    main()
