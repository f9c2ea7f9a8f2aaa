"""A database whose DDL ends the transaction: SQLite, made into one. The contract suite runs on it, and the next try
takes up what one has left that died after its DDL."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flowctl.connectors.base import OpenContext
from flowctl.connectors.sql.embedded import Access
from flowctl.connectors.sqlite import CAPABILITIES
from flowctl.connectors.sqlite.location import location_of
from flowctl.connectors.sqlite.session import SQLITE, SqliteSession
from flowctl.connectors.sqlite.target import SqliteTarget
from flowctl.connectors.target import DETECTED_COLUMN
from flowctl.errors import AbortRun, StoppedByPolicy
from flowctl.model import types
from flowctl.model.mode import Mode
from flowctl.model.schema_change import SchemaChange
from flowctl.model.table_info import Column
from flowctl.storage.buffer import Buffer
from tests.connectors.target_matrix import FACTORIES, Place
from tests.connectors.test_target import *  # noqa: F403
from tests.connectors.writing import COLUMNS, Writer, row, upserts

#: The engine hands over a batch as in every suite of targets; what happens then is the database's.
pytestmark = pytest.mark.long_on_spark


DIALECT = replace(SQLITE, transactional_ddl=False, drop_temporary="DROP TABLE temp.{table}")
_DDL = re.compile(r"(CREATE|ALTER|DROP) (?!TEMPORARY|TABLE temp\.)")


class EndingSession(SqliteSession):
    dialect = DIALECT

    def execute(self, statement: str, parameters: Sequence[Any] = ()) -> int:
        own = "_flowctl_target" in statement or "_flowctl_commits" in statement  # SQLite's, in a transaction of its own
        assert own or not (self.connection.in_transaction and _DDL.match(statement)), f"it would commit: {statement}"
        return super().execute(statement, parameters)


class EndingTarget(SqliteTarget):
    dialect = DIALECT

    @contextmanager
    def open_session(self, access: Access) -> Iterator[SqliteSession]:
        with super().open_session(access) as session:
            yield EndingSession(session.connection, session.inode, session.readers)


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path, scratch: Buffer) -> Iterator[Place]:
    with FACTORIES["sqlite"](request, tmp_path, scratch) as opened:
        path = opened.options["path"]
        target = EndingTarget(Path(path), OpenContext(buffer=scratch), CAPABILITIES, location_of(path))
        yield replace(opened, target=target)


def dies() -> None:
    raise AbortRun("the lease is lost", hint="")


def test_a_table_that_a_try_has_left_is_taken_up_by_its_number(writer: Writer) -> None:
    with pytest.raises(AbortRun):
        writer.write(upserts(row(1)), 1, "merge", before_commit=dies)
    assert writer.committed() is None
    (there,) = writer.place.target.describe([writer.place.object]).values()
    assert there is not None and there.created_by == "intent-1"
    job = writer.job(1, "merge")
    begun = replace(job, record=replace(job.record, target_id=""), create=())  # as a plan sees it that finds the table
    assert writer.place.target.write(writer.spark, writer.batch(upserts(row(1)), COLUMNS), begun).target_id
    assert writer.place.read(["id"]) == [(1,)]


@pytest.mark.parametrize("by", ["somebody else", "another intent"])
def test_a_table_that_another_has_made_is_refused(writer: Writer, by: str) -> None:
    job = writer.job(1, "merge")
    if by == "somebody else":
        writer.place.execute("CREATE TABLE {table} (id INTEGER, name TEXT, amount TEXT)")
    else:
        with pytest.raises(AbortRun):
            writer.write(upserts(row(1)), 1, "merge", intent="other", before_commit=dies)
    with pytest.raises(StoppedByPolicy):
        writer.place.target.write(writer.spark, writer.batch(upserts(row(1)), COLUMNS), job)
    assert writer.committed() is None


HISTORY = (
    *COLUMNS,
    *(Column(name, types.TIMESTAMP) for name in ("valid_from", "valid_to")),
    Column("is_current", types.BOOL),
    Column("row_hash", types.STRING),
)
VERSION = {"valid_from": dt.datetime(2026, 1, 1), "row_hash": "1", DETECTED_COLUMN: False}


@pytest.mark.parametrize(("mode", "columns", "own"), [("merge", COLUMNS, {}), ("scd2", HISTORY, VERSION)])
def test_a_change_that_a_try_has_made_is_not_made_again(
    writer: Writer, mode: Mode, columns: Sequence[Column], own: Mapping[str, Any]
) -> None:
    writer.write(upserts({**row(1), **own}), 1, mode, columns=columns)
    wider = (*columns, Column("note", types.STRING))
    change = SchemaChange("note", "new_column", None, types.STRING, "add", "")
    (there,) = writer.place.target.describe([writer.place.object]).values()
    assert there is not None
    second: dict[str, Any] = {
        "columns": wider,
        "alter": writer.place.target.alter_statements(there, [change]),
        "new_columns": ("note",),
    }
    batch = upserts({**row(2), **own, "note": "x"})
    with pytest.raises(AbortRun):
        writer.write(batch, 2, mode, **second, before_commit=dies)
    assert writer.place.read(["id", "note"]) == [(1, None)]
    writer.write(batch, 2, mode, **second)
    assert sorted(writer.place.read(["id", "note"])) == [(1, None), (2, "x")]
