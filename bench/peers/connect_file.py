"""Kafka Connect's own file sink: all messages of a topic as lines of a file, until there are as many as asked for.

python -m bench.peers.connect_file BROKERS TOPIC FILE LINES
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import BinaryIO

from tests.services import connect

_STRINGS = {f"{part}.converter": "org.apache.kafka.connect.storage.StringConverter" for part in ("key", "value")}


def main(brokers: str, topic: str, file: str, lines: str) -> None:
    sink = "org.apache.kafka.connect.file.FileStreamSinkConnector"
    settings = {"connector.class": sink, "topics": topic, "file": file}
    with connect.connector(brokers, {**settings, **_STRINGS}) as log:
        seen, until = 0, time.monotonic() + 600
        with _opened(Path(file), until) as written:
            while seen < int(lines):
                block = written.read(1 << 24)
                seen += block.count(b"\n")
                if not block:
                    time.sleep(0.05)
                if time.monotonic() > until:
                    raise TimeoutError(log.read_text()[-2000:])
    print(seen)


def _opened(file: Path, until: float) -> BinaryIO:
    while not file.exists() and time.monotonic() < until:
        time.sleep(0.05)
    return file.open("rb")


if __name__ == "__main__":
    main(*sys.argv[1:])
