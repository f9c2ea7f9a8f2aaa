"""Runs SQL with a Spark that has Iceberg's own jars, as a program of its own.

python -m tests.connectors.iceberg.spark_statements WAREHOUSE JARS STATEMENTS RESULT
"""

from __future__ import annotations

import json
import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tests.connectors.iceberg.spark_tables import rows, session
from tests.services import ivy
from tests.services.cache import cached
from tests.services.processes import importing_tests

_IVY_FILE = Path(__file__).parents[2] / "services" / "iceberg.xml"


def run(warehouse: Path, *statements: str) -> list[list[tuple[Any, ...]]]:
    """The rows of each statement. The warehouse is the catalog ``c``, a Hadoop catalog."""
    jars = cached("iceberg-spark-1.12.0", lambda folder: ivy.retrieve(_IVY_FILE, folder))
    with tempfile.TemporaryDirectory() as folder:
        result, own = Path(folder, "result"), "tests.connectors.iceberg.spark_statements"
        command = [sys.executable, "-m", own, warehouse, f"{jars}/*", json.dumps(statements), result]
        env = {**os.environ, "TZ": "UTC", **importing_tests()}
        ran = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=env)
        assert ran.returncode == 0, ran.stderr[-3000:]
        found: list[list[tuple[Any, ...]]] = pickle.loads(result.read_bytes())
        return found


def main(warehouse: str, jars: str, statements: str, result: str) -> None:
    spark = session(warehouse, jars)
    found = [rows(spark.sql(statement).collect()) for statement in json.loads(statements)]
    Path(result).write_bytes(pickle.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
