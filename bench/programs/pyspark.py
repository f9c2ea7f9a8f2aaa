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
#: Its jars for topics.
_TOPICS = "spark-kafka"
JDBC = f"{LOCAL}; `spark.read.jdbc`, one partition, fetchsize 20,000"


def set_up() -> None:
    """Fetches the jars for topics, which flowctl does not need."""
    if ivy.is_ready(_TOPICS):
        print(f"{_TOPICS}: ready")
        return
    ivy.fetch(_TOPICS)
    ivy.copy(_TOPICS, "ivy.xml")


def missing(_setting: Setting) -> str:
    return "" if ivy.is_ready(_TOPICS) else f"{_TOPICS} is not set up: python -m bench setup"


def script(
    task: str, options: Callable[[Setting], Mapping[str, Any]], *, topics: bool = False
) -> Callable[[Setting], Command]:
    """Runs one of the script's functions; the result is in ``lake`` in the competitor's folder."""

    def command(setting: Setting) -> Command:
        used = [*jars.ensure(["delta", "postgresql"])]
        used += sorted((ivy.folder(_TOPICS) / "jars").glob("*.jar")) if topics else []
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
