"""Changes by their order in the source, through the targets' own commits; every case is tested where the SQL is."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from flowctl.connectors.target import DETECTED_COLUMN
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.sql.difference import SOURCE_ORDER
from tests.connectors.test_target_history import COLUMNS as VERSIONS
from tests.connectors.test_target_history import gone as closed
from tests.connectors.test_target_history import seen
from tests.connectors.writing import COLUMNS, SOFT, Row, Writer, gone, upserts

ORDER = Column(SOURCE_ORDER, types.STRING)
MERGED: dict[str, Any] = {"columns": (*COLUMNS, SOFT, ORDER), "soft_deletes": True, "is_ordered": True}
DATED: dict[str, Any] = {"columns": (*VERSIONS, ORDER), "compared": ("name",), "is_ordered": True, "is_dated": True}


def put(id: int, name: str, order: str) -> Row:
    return {**upserts({"id": id, "name": name, "amount": None})[0], SOURCE_ORDER: order}


def delete(id: int, order: str) -> Row:
    return {**gone(id), SOURCE_ORDER: order}


def merge(writer: Writer, seq: int, *rows: Row, **job: Any) -> list[tuple[Any, ...]]:
    """The content after the commit: id, name, order, and whether the row is deleted."""
    compared = {"compared": ("name", "amount")}
    writer.write(rows, seq, "merge", **{**MERGED, **compared, **job})
    found = writer.place.read(("id", "name", SOURCE_ORDER, SOFT.name))
    return sorted((id, name, order, at is not None) for id, name, order, at in found)


@pytest.mark.modes("merge")
@pytest.mark.long_on_spark
def test_a_merge_leaves_out_what_is_older_than_the_row(writer: Writer) -> None:
    must_leave_out_what_is_older(writer)


def must_leave_out_what_is_older(writer: Writer) -> None:
    assert merge(writer, 1, put(1, "a", "2"), delete(2, "3")) == [(1, "a", "2", False), (2, None, "3", True)]
    assert merge(writer, 2, put(1, "z", "1"), put(2, "z", "2")) == [(1, "a", "2", False), (2, None, "3", True)]
    assert merge(writer, 3, put(1, "a", "4"), delete(2, "5")) == [(1, "a", "4", False), (2, None, "5", True)]
    assert merge(writer, 4, put(1, "z", "3"), put(2, "z", "4")) == [(1, "a", "4", False), (2, None, "5", True)]
    assert merge(writer, 5, put(1, "b", "4"), put(2, "z", "5")) == [(1, "b", "4", False), (2, None, "5", True)]
    assert merge(writer, 6, delete(1, "6"), put(2, "c", "7"), delete(3, "8")) == [
        (1, "b", "6", True),
        (2, "c", "7", False),
        (3, None, "8", True),
    ]


@pytest.mark.modes("merge")
@pytest.mark.long_on_spark
def test_a_merge_counts_what_it_leaves_out(writer: Writer) -> None:
    must_count_what_is_left_out(writer)


def must_count_what_is_left_out(writer: Writer) -> None:
    """What is older than the row, and what has the row's order and changes nothing."""

    def count(seq: int, *rows: Row) -> tuple[int | None, int | None]:
        counts = writer.write(rows, seq, "merge", **{**MERGED, "compared": ("name", "amount")}).counts
        return counts.inserted, counts.ignored

    assert count(1, put(1, "a", "2"), delete(2, "3"), put(3, "c", "4")) == (3, 0)
    assert count(2, put(1, "z", "1"), delete(2, "3"), put(3, "d", "5"), put(4, "n", "6")) == (1, 2)
    assert count(3, put(1, "a", "2"), put(2, "z", "1")) == (0, 2)
    plain = writer.write([put(4, "n", "6")], 4, "merge", **{**MERGED, "is_ordered": False})
    assert plain.counts.ignored is None


@pytest.mark.modes("merge")
@pytest.mark.long_on_spark
def test_replaced_content_keeps_the_order_of_deleted_rows(writer: Writer) -> None:
    must_keep_orders_of_deleted_rows(writer)


def must_keep_orders_of_deleted_rows(writer: Writer) -> None:
    merge(writer, 1, put(1, "a", "2"))
    assert merge(writer, 2, put(2, "b", "3"), delete(3, "4"), replace=True) == [
        (2, "b", "3", False),
        (3, None, "4", True),
    ]


@pytest.mark.modes("merge")
@pytest.mark.long_on_spark
def test_rows_without_an_order_are_older_than_everything(writer: Writer) -> None:
    merge(writer, 1, put(1, "a", "2"), put(2, "b", "2"))
    merge(writer, 2, {**put(1, "x", ""), SOURCE_ORDER: None}, is_ordered=False)
    assert merge(writer, 3, put(1, "c", "1")) == [(1, "c", "1", False), (2, "b", "2", False)]


@pytest.mark.modes("scd2")
@pytest.mark.long_on_spark
def test_a_history_leaves_out_what_is_not_newer(writer: Writer) -> None:
    ignored: list[int | None] = []

    def write(seq: int, *rows: Row) -> Sequence[tuple[Any, ...]]:
        done = writer.write([{**row, DETECTED_COLUMN: False} for row in rows], seq, "scd2", **DATED)
        ignored.append(done.counts.ignored)
        found = writer.place.read(("valid_from", "name", "is_current", SOURCE_ORDER))
        return [(name, bool(now), order) for _, name, now, order in sorted(found, key=str)]

    def at(row: Row, order: str) -> Row:
        return {**row, SOURCE_ORDER: order}

    assert write(1, at(seen("A", 1), "1")) == [("A", True, "1")]
    both = [("A", False, "1"), ("B", True, "2")]
    assert write(2, at(seen("B", 2), "2")) == both
    assert write(3, at(seen("A", 3), "1"), at(seen("B", 4), "2")) == both
    ended = [("A", False, "1"), ("B", False, "2")]
    assert write(4, at(closed(5), "4")) == ended
    assert write(5, at(seen("A", 6), "1"), at(seen("Z", 7), "3"), at(closed(8), "4")) == ended
    assert write(6, at(seen("C", 9), "5")) == [*ended, ("C", True, "5")]
    assert ignored == [0, 0, 2, 0, 3, 0]
