"""dlt: ``peers/dlt_load.py`` in an environment of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from bench import peers
from bench.case import Command, Relation, Setting
from bench.contents import delta

_DATASET = "bench"

SQL = "sql_database, `full_with_precision` reflection, 100,000 rows a chunk"
DELTA = "filesystem destination with `table_format=delta`, telemetry off"


def load(task: Callable[[Setting], Mapping[str, Any]]) -> Callable[[Setting], Command]:
    """``task`` is the script's argument; pipeline state, staged files and the lake are in the competitor's folder."""

    def command(setting: Setting) -> Command:
        whole = {"dataset": _DATASET, "pipelines": str(setting.folder / "dlt"), "lake": str(setting.folder / "lake")}
        script = str(peers.HERE / "dlt_load.py")
        quiet = {"RUNTIME__DLTHUB_TELEMETRY": "false", "DLT_PROJECT_DIR": str(setting.folder)}
        argv = (peers.python("dlt"), script, json.dumps({**whole, **task(setting)}))
        return Command(argv, cwd=setting.folder, env=quiet)

    return command


def missing(_setting: Setting) -> str:
    return peers.missing("dlt")


def in_lake(table: str, where: str = "true") -> Callable[[Setting], tuple[Relation, ...]]:
    return lambda setting: (delta(setting.folder / "lake" / _DATASET / table, where),)
