"""Plain PySpark: ``peers/plain_pyspark.py``, with flowctl's pyspark and jars, but nothing else of flowctl."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

from bench import peers
from bench.case import Command, Relation, Setting
from bench.contents import delta
from bench.programs import ivy
from flowctl.engine import jars

LOCAL = (
    "a script on `local[*]`, 4 GiB of heap, jars on the class path, UI off, as many shuffle and snapshot partitions as"
    " cores"
)
#: Jars that flowctl does not need: for topics, for tables in Iceberg, for MySQL.
KAFKA, ICEBERG, MYSQL = "spark-kafka", "spark-iceberg", "spark-mysql"
JDBC = f"{LOCAL}; `spark.read.jdbc`, one partition, fetchsize 20,000"


def set_up() -> None:
    """Fetches the jars that flowctl does not need."""
    for name in (KAFKA, ICEBERG, MYSQL):
        if ivy.is_ready(name):
            print(f"{name}: ready")
            continue
        ivy.fetch(name)
        ivy.copy(name, "ivy.xml")


def missing(name: str) -> Callable[[Setting], str]:
    """Why a script that needs these jars cannot run."""
    return lambda _setting: "" if ivy.is_ready(name) else f"{name} is not set up: python -m bench setup"


def script(task: str, options: Callable[[Setting], Mapping[str, Any]], *also: str) -> Callable[[Setting], Command]:
    """Runs one of the script's functions, with flowctl's jars and those of ``also``; the result is in ``lake`` in the
    competitor's folder, unless the task says where."""

    def command(setting: Setting) -> Command:
        used = [*jars.ensure(["delta", "postgresql", *(["s3a"] if setting.world.s3 else [])])]
        used += [jar for name in also for jar in sorted((ivy.folder(name) / "jars").glob("*.jar"))]
        class_path = os.pathsep.join(map(str, used))
        given = {"lake": str(setting.folder / "lake"), **options(setting)}
        file = str(peers.HERE / "plain_pyspark.py")
        return Command((sys.executable, file, task, json.dumps(given), class_path), cwd=setting.folder)

    return command


def jdbc(url: str) -> dict[str, str]:
    """The password comes from the environment."""
    parts = urlsplit(url)
    return {"url": f"jdbc:postgresql://{parts.hostname}:{parts.port}{parts.path}", "user": parts.username or ""}


def in_lake(table: str, where: str = "true") -> Callable[[Setting], tuple[Relation, ...]]:
    return lambda setting: (delta(setting.folder / "lake" / table, where),)
