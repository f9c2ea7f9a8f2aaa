"""Settings of a role or a database that change how values and types are written: flowctl's sessions have their own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import Array
from flowctl.storage.buffer import Buffer
from tests.connectors.target_matrix import FACTORIES, Place
from tests.connectors.writing import Writer, upserts

pytestmark = pytest.mark.long_on_spark

SETTINGS = {
    "array_nulls": "off",
    "xmloption": "document",
    "quote_all_identifiers": "on",
    "bytea_output": "escape",
    "standard_conforming_strings": "off",
    "backslash_quote": "off",
    "extra_float_digits": "-15",
    "IntervalStyle": "iso_8601",
    "DateStyle": "German",
    "TimeZone": "Asia/Tokyo",
}
TEXTS = (r"a\b", "'", "NULL", "null", "", '"')
COLUMNS = (
    Column("id", types.INT32),
    Column("texts", Array(types.STRING)),
    Column("numbers", Array(types.DOUBLE)),
    Column("content", types.STRING),
    Column("bytes", types.BINARY),
)


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path, scratch: Buffer) -> Iterator[Place]:
    with FACTORIES["postgres"](request, tmp_path, scratch) as opened:
        yield opened


@pytest.mark.parametrize("is_adopted", [False, True])
def test_values_do_not_depend_on_settings(writer: Writer, database: psycopg.Connection[Any], is_adopted: bool) -> None:
    for name, value in SETTINGS.items():
        database.execute(f"ALTER DATABASE \"{database.info.dbname}\" SET {name} = '{value}'".encode())
    if is_adopted:
        declared = "id int, texts text[], numbers float8[], content xml, bytes bytea"
        writer.place.execute(f"CREATE TABLE {{table}} ({declared})")
    row = {"id": 1, "texts": [None, *TEXTS], "numbers": [None, 0.1 + 0.2], "content": "a<b/>c", "bytes": b"\\\0'"}
    for seq, inserted in ((1, 1), (2, 0)):
        counts = writer.write(upserts(row), seq, "merge", columns=COLUMNS, in_memory=True).counts
        assert (counts.inserted, counts.updated) == (inserted, 0)
    natives = {one.name: one.native for one in writer.info().columns}
    expected = {"texts": "text[]", "content": "xml" if is_adopted else "text", "bytes": "bytea"}
    assert {name: natives[name] for name in expected} == expected
    database.execute(f'ALTER DATABASE "{database.info.dbname}" RESET ALL'.encode())  # for others' own reading
    assert writer.place.read([*row]) == [tuple(row.values())]


@pytest.mark.parametrize(("default", "used"), [("off", "local"), ("remote_write", "remote_write")])
def test_a_commit_is_on_disk_when_it_is_recorded(
    writer: Writer, database: psycopg.Connection[Any], default: str, used: str
) -> None:
    database.execute(f"ALTER DATABASE \"{database.info.dbname}\" SET synchronous_commit = '{default}'".encode())
    waits = "waits text NOT NULL DEFAULT current_setting('synchronous_commit')"
    writer.place.execute(f"CREATE TABLE {{table}} (id int PRIMARY KEY, {waits})")
    writer.write([{"id": 1}], 1, columns=(Column("id", types.INT32),), in_memory=True)
    assert writer.place.read(["id", "waits"]) == [(1, used)]
