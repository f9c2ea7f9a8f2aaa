"""The process of :mod:`flowctl.run.sail`: a Sail server that says its port, and ends with whoever has started it."""

from __future__ import annotations

import os
import sys


def main() -> None:
    from pysail.spark import SparkConnectServer

    server = SparkConnectServer("127.0.0.1", 0)
    server.start(background=True)
    _, port = server.listening_address
    print(port, flush=True)
    sys.stdin.buffer.read()  # until the pipe closes: at the run's end, or when it is killed
    os._exit(0)  # Sail's own way out waits for queries that nobody wants any more


if __name__ == "__main__":
    main()
