"""Iceberg tables that Spark has written: every snapshot as Spark reads it, and what leads from one to another."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from flowctl.connectors.source import DELETED_COLUMN, PLACE_COLUMN, ReadRequest
from flowctl.model import types
from flowctl.model.interval import Interval
from flowctl.model.position import VersionPosition
from flowctl.model.table_info import Column
from tests.connectors.iceberg.spark_tables import HISTORIES
from tests.connectors.reading import Collected, captured_rows, describe, opened, table
from tests.services import ivy
from tests.services.cache import cached
from tests.services.processes import importing_tests

pytestmark = [pytest.mark.full, pytest.mark.server]

_IVY_FILE = Path(__file__).parents[2] / "services" / "iceberg.xml"
_OWN = (Column(PLACE_COLUMN, types.INT64), Column(DELETED_COLUMN, types.BOOL))
#: Rows by the id of their snapshot.
Content = dict[int, list[tuple[Any, ...]]]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Content]]:
    """The warehouse, and the rows of each snapshot of each table as Spark reads them, oldest first."""
    jars = cached("iceberg-spark-1.12.0", lambda folder: ivy.retrieve(_IVY_FILE, folder))
    folder = tmp_path_factory.mktemp("iceberg")
    warehouse, result = folder / "warehouse", folder / "result"
    command = [sys.executable, "-m", "tests.connectors.iceberg.spark_tables", warehouse, f"{jars}/*", result]
    env = {**os.environ, "TZ": "UTC", **importing_tests()}
    ran = subprocess.run(command, capture_output=True, text=True, cwd=folder, env=env)
    assert ran.returncode == 0, ran.stderr[-3000:]
    return warehouse, pickle.loads(result.read_bytes())


@pytest.mark.parametrize("name", HISTORIES)
def test_as_spark_reads_it(written: tuple[Path, dict[str, Content]], name: str) -> None:
    warehouse, contents = written
    assert contents[name]
    with opened("iceberg", warehouse=str(warehouse), namespace="db") as connector:
        for snapshot, rows in contents[name].items():
            found = captured_rows(connector.source, table(f"{name}@s{snapshot}"))
            assert counted(found) == Counter(map(repr, (_in_utc(row) for row in rows))), snapshot
        newest = captured_rows(connector.source, table(name))
        if name != "evolved":  # its newest schema is that of its newest snapshot, too
            assert counted(newest) == counted(found)
        versions = [describe(connector.source, table(f"{name}@s{one}")).version for one in contents[name]]
        assert versions == sorted(set(versions))


@pytest.mark.parametrize("name", [name for name in HISTORIES if name not in ("kinds", "hive")])
def test_what_leads_from_each_version_to_each_later_one(written: tuple[Path, dict[str, Content]], name: str) -> None:
    warehouse, contents = written
    with opened("iceberg", warehouse=str(warehouse), namespace="db") as connector:
        source, read = connector.source, table(name)
        info = describe(source, read)
        versions = [describe(source, table(f"{name}@s{one}")).version or 0 for one in contents[name]]
        for at, since in enumerate(versions):
            for upto in versions[at + 1 :]:
                before, after = (_at(source, info, read, one) for one in (since, upto))
                interval = Interval(*(VersionPosition(one, info.identity) for one in (since, upto)))
                sink = Collected()
                with source.capture(read, info) as capture:
                    capture.read(ReadRequest((*info.columns, *_OWN), interval, net=True, key=("id",)), sink)
                new = counted([row for row in sink.rows if not row[DELETED_COLUMN]])
                assert new == counted(after) - counted(before), (since, upto)
                ids = {row["id"] for row in before} - {row["id"] for row in after}
                assert ids <= {row["id"] for row in sink.rows if row[DELETED_COLUMN]}, (since, upto)


def _at(source: Any, info: Any, read: Any, version: int) -> list[dict[str, Any]]:
    sink = Collected()
    with source.capture(read, info) as capture:
        capture.read(ReadRequest(info.columns, Interval(None, VersionPosition(version, info.identity))), sink)
    return sink.rows


def counted(rows: list[dict[str, Any]]) -> Counter[str]:
    own = {column.name for column in _OWN}
    return Counter(repr(_in_utc(tuple(value for name, value in row.items() if name not in own))) for row in rows)


def _in_utc(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """Spark's moments have no zone; their texts are in UTC."""
    return tuple(value.replace(tzinfo=None) if hasattr(value, "tzinfo") else value for value in row)
