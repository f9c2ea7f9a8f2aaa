"""Debezium's embedded engine: captures the changes of a slot into a file of JSON lines."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from urllib.parse import urlsplit

from bench.case import Command, Setting
from bench.peers import HERE, NotSetUp

_FOLDER = HERE.parent / ".venvs" / "debezium"
_SOURCES = (HERE / "debezium" / "ivy.xml", HERE / "debezium" / "Capture.java")


def set_up() -> None:
    """Fetches the jars with the Ivy of the pyspark wheel, and compiles the program."""
    if not missing():
        print("debezium: ready")
        return
    from flowctl.engine.jars import spark_jars

    print("debezium: fetching …", flush=True)
    shutil.rmtree(_FOLDER, ignore_errors=True)
    _FOLDER.mkdir(parents=True)
    [ivy] = spark_jars().glob("ivy-*.jar")
    fetch = ["-ivy", str(_SOURCES[0]), "-cache", "cache", "-retrieve", "jars/[artifact]-[revision].[ext]", "-warn"]
    subprocess.run(["java", "-jar", str(ivy), *fetch], cwd=_FOLDER, check=True)
    subprocess.run(["javac", "-cp", "jars/*", "-d", "classes", str(_SOURCES[1])], cwd=_FOLDER, check=True)
    for source in _SOURCES:
        shutil.copy(source, _FOLDER / source.name)


def missing(_setting: Setting | None = None) -> str:
    copies = [(source, _FOLDER / source.name) for source in _SOURCES]
    if shutil.which("javac") and all(copy.is_file() and copy.read_bytes() == one.read_bytes() for one, copy in copies):
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
        classpath = f"{_FOLDER}/classes:{_FOLDER}/jars/*"
        output = setting.folder / "changes.jsonl"
        argv = ("java", "-cp", classpath, "Capture", str(output), str(setting.prepared.rows), *pairs)
        return Command(argv, cwd=setting.folder)

    return command
