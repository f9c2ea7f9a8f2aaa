"""Rejected rows beside the table, on every target: of one number once, of one row once, and never without the lease."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from flowctl.connectors.letters import REASON_COLUMN
from flowctl.connectors.target import WriteJob
from flowctl.errors import AbortRun
from flowctl.model import types
from flowctl.model.commit import Commit
from flowctl.model.mode import Mode
from flowctl.model.position import VersionPosition
from flowctl.model.table_info import Column
from flowctl.run.quarantine import QUARANTINE, Place, count_kept, quarantine
from flowctl.spec.spec import Layout
from tests.connectors.writing import LINEAGE, Writer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

pytestmark = pytest.mark.long_on_spark

#: As a sidecar was before rows knew their lineage.
OLD = (
    Column("id", types.STRING),
    Column("_seq", types.INT64),
    Column("_run_id", types.STRING),
    Column("_reason", types.STRING),
)
NEVER = Commit("", "", 0, "", "", None)


def keep(
    writer: Writer,
    seq: int,
    ids: Sequence[str],
    mode: Mode = "merge",
    *,
    lineage: str = LINEAGE,
    newest: Commit = NEVER,
    repeats: bool = False,
    before_commit: Callable[[], None] = lambda: None,
) -> None:
    job = _job(writer, seq, mode, lineage, before_commit)
    rejected = _rejected(writer, ids) if ids else None
    place = Place(writer.place.target, QUARANTINE.of(writer.place.object), QUARANTINE)
    quarantine(lambda: writer.spark, place, job, rejected, newest, repeats=repeats)


def count_again(writer: Writer, seq: int, ids: Sequence[str], mode: Mode = "merge", *, replaces: bool = False) -> int:
    """How many of these rows are in quarantine before the number's own are."""
    job = replace(_job(writer, seq, mode, LINEAGE, lambda: None), replace=replaces)
    job = replace(job, record=replace(job.record, target_id="its table"))
    place = Place(writer.place.target, QUARANTINE.of(writer.place.object), QUARANTINE)
    return count_kept(writer.spark, place, job, _rejected(writer, ids))


def _rejected(writer: Writer, ids: Sequence[str]) -> DataFrame:
    rows = [(int(id), f"note {id}", "id: in") for id in ids]
    return writer.spark.createDataFrame(rows, f"id BIGINT, note STRING, {REASON_COLUMN} STRING")


def _job(writer: Writer, seq: int, mode: Mode, lineage: str, before_commit: Callable[[], None]) -> WriteJob:
    job = writer.job(seq, mode, before_commit=before_commit)
    return replace(job, record=replace(job.record, lineage=lineage))


def kept(writer: Writer) -> list[tuple[str | None, int, str]]:
    """Lineage, number and id of each row."""
    columns = (Column("_lineage", types.STRING), *OLD)
    rows = writer.place.target.scan(writer.spark, QUARANTINE.of(writer.place.object), columns).collect()
    return sorted(((row["_lineage"], row["_seq"], row["id"]) for row in rows), key=str)


def test_a_number_is_replaced_with_its_lineage_and_a_row_is_kept_once(writer: Writer) -> None:
    keep(writer, 1, ["1", "2"])
    keep(writer, 1, ["2"], repeats=True)
    assert kept(writer) == [(LINEAGE, 1, "2")]  # the first is repaired
    assert [count_again(writer, seq, ["2", "3"]) for seq in (1, 2)] == [0, 1]  # those of 1 are replaced by 1
    assert count_again(writer, 2, ["2"], "append") == count_again(writer, 2, ["2"], replaces=True) == 0
    keep(writer, 2, ["2", "3"])
    keep(writer, 2, ["4"], lineage="another")
    assert kept(writer) == [("another", 2, "4"), (LINEAGE, 1, "2"), (LINEAGE, 2, "3")]
    keep(writer, 2, [], repeats=True)
    assert kept(writer) == [("another", 2, "4"), (LINEAGE, 1, "2")]


def test_a_sidecar_of_an_older_version_gets_its_lineage(writer: Writer) -> None:
    target, object = writer.place.target, QUARANTINE.of(writer.place.object)
    statements = target.create_statements(object, OLD, Layout())
    made = replace(writer.job(1, "append", columns=OLD, create=statements), object=object)
    target.write(
        writer.spark, writer.batch([{"id": "1", "_seq": 1, "_run_id": "run-0", "_reason": "id: in"}], OLD), made
    )
    keep(writer, 1, ["2"], "append")
    keep(writer, 2, ["2"], "append")  # an equal row of an append is another row
    assert kept(writer) == [(LINEAGE, 1, "2"), (LINEAGE, 2, "2"), (None, 1, "1")]


def test_rows_of_a_number_that_was_given_up_go(writer: Writer) -> None:
    keep(writer, 3, ["1", "2"])
    given_up = Commit(LINEAGE, "orders", 3, "gone", "", VersionPosition(2), void=True)
    keep(writer, 4, ["2"], newest=given_up)
    assert kept(writer) == [(LINEAGE, 4, "2")]
    keep(writer, 5, [], newest=replace(given_up, seq=4))
    assert kept(writer) == []


def test_nothing_is_kept_without_the_lease(writer: Writer) -> None:
    def lost() -> None:
        raise AbortRun("the lease is gone")

    keep(writer, 1, ["1"])
    with pytest.raises(AbortRun):
        keep(writer, 2, ["2"], before_commit=lost)
    assert kept(writer) == [(LINEAGE, 1, "1")]


def test_no_sidecar_is_made_where_nothing_is_rejected(writer: Writer) -> None:
    keep(writer, 1, [], repeats=True)
    object = QUARANTINE.of(writer.place.object)
    assert writer.place.target.describe([object])[object] is None
