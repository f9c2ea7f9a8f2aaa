"""Debezium's embedded engine: captures the changes of a slot into a file of JSON lines."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from urllib.parse import urlsplit

from bench.case import Command, Setting
from bench.peers import HERE, NotSetUp
from bench.programs import ivy

_PROGRAM = "Capture.java"


def set_up() -> None:
    """Fetches the jars, and compiles the program."""
    if not missing():
        print("debezium: ready")
        return
    place = ivy.fetch("debezium")
    source = str(HERE / "debezium" / _PROGRAM)
    subprocess.run(["javac", "-cp", "jars/*", "-d", "classes", source], cwd=place, check=True)
    ivy.copy("debezium", "ivy.xml", _PROGRAM)


def missing(_setting: Setting | None = None) -> str:
    if shutil.which("javac") and ivy.is_ready("debezium", _PROGRAM):
        return ""
    return "debezium is not set up (it needs a JDK): python -m bench setup"


def capture(slot: str, publication: str, table: str) -> Callable[[Setting], Command]:
    def command(setting: Setting) -> Command:
        if why := missing():
            raise NotSetUp(why)
        parts = urlsplit(setting.world.postgres)
        options = {
            "name": "bench",
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "offset.storage": "org.apache.kafka.connect.storage.MemoryOffsetBackingStore",
            "database.hostname": parts.hostname,
            "database.port": parts.port,
            "database.user": parts.username,
            "database.password": os.environ["BENCH_PASSWORD"],
            "database.dbname": parts.path[1:],
            "topic.prefix": "bench",
            "table.include.list": table,
            "plugin.name": "pgoutput",
            "slot.name": slot,
            "publication.name": publication,
            "publication.autocreate.mode": "disabled",
            "snapshot.mode": "no_data",
            "converter.schemas.enable": "false",
            "max.batch.size": 20480,
            "max.queue.size": 81920,
        }
        pairs = [f"{key}={value}" for key, value in options.items()]
        place = ivy.folder("debezium")
        classpath = f"{place}/classes:{place}/jars/*"
        output = setting.folder / "changes.jsonl"
        argv = ("java", "-cp", classpath, "Capture", str(output), str(setting.prepared.rows), *pairs)
        return Command(argv, cwd=setting.folder)

    return command
