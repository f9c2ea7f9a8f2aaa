"""The contract of targets: what a commit changes, and that no number changes anything twice."""

from __future__ import annotations

from decimal import Decimal

import pytest

from flowctl.connectors.target import OP_COLUMN
from flowctl.errors import StateConflict
from flowctl.model import types
from flowctl.model.mode import Mode
from flowctl.model.position import VersionPosition
from flowctl.model.schema_change import SchemaChange
from flowctl.model.table_info import Column
from tests.connectors.reading import describe
from tests.connectors.writing import AT, COLUMNS, SOFT, Row, Writer, gone, upserts

SOFT_COLUMNS = (*COLUMNS, SOFT)


def row(id: int, name: str | None = "a", amount: str = "1.10") -> Row:
    return {"id": id, "name": name, "amount": Decimal(amount)}


def content(writer: Writer, *names: str) -> list[tuple[object, ...]]:
    return sorted(writer.place.read(names or ("id", "name")))


@pytest.mark.smoke
def test_append_adds_rows_and_their_record(writer: Writer) -> None:
    writer.write([row(1), row(2)], 1)
    commit = writer.write([row(2), row(3)], 2)
    assert content(writer, "id") == [(1,), (2,), (2,), (3,)]
    assert (commit.seq, commit.intent_id, commit.position) == (2, "intent-2", VersionPosition(2))
    assert (commit.counts.read, commit.counts.inserted) == (2, 2)
    assert commit.target_id == writer.info().identity
    assert writer.committed().record() == commit.record()


@pytest.mark.long_on_spark
def test_nothing_is_committed_in_a_place_without_commits(writer: Writer) -> None:
    assert writer.committed() is None
    assert writer.place.target.describe([writer.place.object])[writer.place.object] is None


@pytest.mark.long_on_spark
def test_an_empty_batch_is_a_commit(writer: Writer) -> None:
    assert writer.write([], 1).counts.inserted == 0
    assert content(writer) == []


@pytest.mark.long_on_spark
def test_columns_of_a_new_table_read_back_as_declared(writer: Writer) -> None:
    writer.write([row(1)], 1)
    info = writer.info()
    assert [(column.name, column.type, column.nullable) for column in info.columns] == [
        (column.name, column.type, True) for column in COLUMNS
    ]


@pytest.mark.long_on_spark
@pytest.mark.parametrize("mode", ["append", "merge"])
def test_a_number_is_committed_over_the_one_that_it_was_begun_on(writer: Writer, mode: Mode) -> None:
    rows = [upserts(row(number)) if mode == "merge" else [row(number)] for number in range(1, 5)]
    writer.write(rows[0], 1, mode, base=None)
    writer.write(rows[1], 2, mode, base="1/intent-1")
    for taken_back in ("3/intent-3", "2/another", ""):
        with pytest.raises(StateConflict, match=r"was begun: it has (another commit of )?sequence number 2, but"):
            writer.write(rows[3], 4, mode, base=taken_back)
    assert content(writer, "id") == [(1,), (2,)]
    writer.write(rows[2], 3, mode, base="2/intent-2")
    again = writer.write(rows[2], 3, mode, base="2/intent-2")  # it has landed: nothing is committed over anything
    assert (again.seq, content(writer, "id")) == (3, [(1,), (2,), (3,)])


@pytest.mark.long_on_spark("postgres")
@pytest.mark.parametrize("mode", ["append", "truncate", "merge"])
def test_the_same_number_again_changes_nothing(writer: Writer, mode: str) -> None:
    first = writer.write(upserts(row(1)) if mode == "merge" else [row(1)], 1, mode)
    again = writer.write(upserts(row(2)) if mode == "merge" else [row(2)], 1, mode)
    assert content(writer, "id") == [(1,)]
    assert again.record() == first.record()


@pytest.mark.long_on_spark
def test_a_number_of_another_intent_is_refused(writer: Writer) -> None:
    writer.write([row(1)], 1)
    with pytest.raises(StateConflict, match="number 1"):
        writer.write([row(2)], 1, intent="somebody else's")
    assert content(writer, "id") == [(1,)]


@pytest.mark.long_on_spark
def test_a_lower_number_is_refused(writer: Writer) -> None:
    writer.write([row(1)], 2)
    with pytest.raises(StateConflict, match="number 2"):
        writer.write([row(2)], 1)
    with pytest.raises(StateConflict, match="number 2"):
        writer.void(1)
    assert content(writer, "id") == [(1,)]


@pytest.mark.long_on_spark("postgres")
@pytest.mark.parametrize("stale_writer", ["the intent given up", "another intent"])
def test_after_a_void_the_stale_writer_of_its_number_cannot_land(writer: Writer, stale_writer: str) -> None:
    writer.write([row(1)], 1)
    void = writer.void(2, intent="the intent given up")
    assert (void.seq, void.void) == (2, True)
    assert writer.void(2, intent="the intent given up").record() == void.record()
    with pytest.raises(StateConflict):
        writer.write([row(2)], 2, intent=stale_writer)
    assert writer.write([row(3)], 3).seq == 3
    assert content(writer, "id") == [(1,), (3,)]


@pytest.mark.long_on_spark
def test_a_void_tells_of_the_data_that_has_landed_under_its_number(writer: Writer) -> None:
    landed = writer.write([row(1)], 1)
    assert writer.void(1).record() == landed.record()


@pytest.mark.smoke
def test_truncate_replaces_everything(writer: Writer) -> None:
    writer.write([row(1), row(2)], 1, "truncate")
    commit = writer.write([row(3)], 2, "truncate")
    assert content(writer, "id") == [(3,)]
    assert commit.counts.inserted == 1
    assert commit.counts.deleted in (2, writer.place.untold)


@pytest.mark.long_on_spark
def test_a_reader_never_sees_an_empty_table_while_it_is_replaced(writer: Writer) -> None:
    writer.write([row(1)], 1, "truncate")
    seen = []
    writer.write([row(2)], 2, "truncate", before_commit=lambda: seen.append(content(writer, "id")))
    assert seen == [[(1,)]]
    assert content(writer, "id") == [(2,)]


@pytest.mark.long_on_spark("postgres")
def test_a_lost_lease_leaves_nothing(writer: Writer) -> None:
    def lost() -> None:
        raise RuntimeError("lease lost")

    writer.write([row(1)], 1)
    with pytest.raises(RuntimeError, match="lease lost"):
        writer.write([row(2)], 2, before_commit=lost)
    assert content(writer, "id") == [(1,)]
    assert writer.committed().seq == 1
    assert writer.write([row(2)], 2).seq == 2


@pytest.mark.modes("merge")
@pytest.mark.smoke
def test_merge_inserts_updates_and_deletes(writer: Writer) -> None:
    writer.write(upserts(row(1), row(2), row(3)), 1, "merge")
    commit = writer.write([*upserts(row(1), row(2, "b"), row(4)), gone(3), gone(9)], 2, "merge")
    assert content(writer) == [(1, "a"), (2, "b"), (4, "a")]
    counts = commit.counts
    assert (counts.read, counts.inserted, counts.updated, counts.deleted) == (5, 1, 1, 1)


@pytest.mark.modes("merge")
@pytest.mark.long_on_spark
def test_a_merge_takes_columns_called_as_something_of_a_query(writer: Writer) -> None:
    """DuckDB wrote nothing where the difference had a column of its own with the name."""
    names = ("_action", "t", "s", "d", "key", "row", "count")
    columns = (Column("n", types.INT64), *(Column(name, types.STRING) for name in names))

    def merge(seq: int, **values: str) -> None:
        rows = [{"n": number, **dict.fromkeys(names, f"{number}"), **values, OP_COLUMN: "U"} for number in (1, 2)]
        rows.append({"n": 3, **dict.fromkeys(names), OP_COLUMN: "D" if seq > 1 else "U"})
        writer.write(rows, seq, "merge", columns=columns, key=("n",), compared=names)

    merge(1)
    merge(2, _action="insert")
    assert content(writer, "n", *names) == [(n, "insert", *[f"{n}"] * 6) for n in (1, 2)]


@pytest.mark.modes("merge")
@pytest.mark.long_on_spark
def test_null_and_empty_text_are_different_and_null_equals_null(writer: Writer) -> None:
    writer.write(upserts(row(1, None), row(2, None), row(3, "")), 1, "merge")
    commit = writer.write(upserts(row(1, None), row(2, ""), row(3, None)), 2, "merge")
    assert commit.counts.updated == 2
    assert sorted(content(writer), key=str) == [(1, None), (2, ""), (3, None)]


@pytest.mark.modes("merge")
@pytest.mark.long_on_spark
def test_columns_that_are_not_compared_do_not_make_a_row_new(writer: Writer) -> None:
    writer.write(upserts(row(1, "a", "1.00")), 1, "merge", compared=("name",))
    assert writer.write(upserts(row(1, "a", "2.00")), 2, "merge", compared=("name",)).counts.updated == 0
    writer.write(upserts(row(1, "b", "3.00")), 3, "merge", compared=("name",))
    assert [str(amount) for (amount,) in writer.place.read(["amount"])] == ["3.00"]


@pytest.mark.modes("merge")
@pytest.mark.long_on_spark
def test_soft_deletes_mark_rows_and_a_row_that_comes_back_loses_its_mark(writer: Writer) -> None:
    soft = {"columns": SOFT_COLUMNS, "soft_deletes": True}
    writer.write(upserts(row(1), row(2)), 1, "merge", **soft)
    assert writer.write([gone(2)], 2, "merge", **soft).counts.deleted in (1, writer.place.untold)
    assert marks(writer) == {1: None, 2: AT}
    assert writer.write([gone(2)], 3, "merge", **soft).counts.deleted in (0, writer.place.untold)
    assert writer.write(upserts(row(2)), 4, "merge", **soft).counts.updated == 1
    assert marks(writer) == {1: None, 2: None}
    assert content(writer) == [(1, "a"), (2, "a")]


def marks(writer: Writer) -> dict[int, str | None]:
    scanned = writer.place.target.scan(writer.spark, writer.place.object, [COLUMNS[0], SOFT])
    text = scanned.selectExpr("id", """date_format(_deleted_at, "yyyy-MM-dd'T'HH:mm:ss.SSSSSS'Z'") AS at""")
    return {found["id"]: found["at"] for found in text.collect()}


@pytest.mark.modes("merge")
@pytest.mark.long_on_spark
def test_a_full_refresh_of_a_merge_replaces_everything(writer: Writer) -> None:
    writer.write(upserts(row(1), row(2)), 1, "merge")
    writer.write([*upserts(row(2, "b")), gone(5)], 2, "merge", replace=True)
    assert content(writer) == [(2, "b")]


@pytest.mark.long_on_spark
def test_a_full_refresh_of_an_append_replaces_everything(writer: Writer) -> None:
    writer.write([row(1), row(2)], 1, "append")
    writer.write([row(2, "b")], 2, "append", replace=True)
    assert content(writer) == [(2, "b")]


@pytest.mark.long_on_spark("postgres")
def test_a_full_refresh_changes_a_type_in_the_commit_that_replaces_the_content(writer: Writer) -> None:
    writer.write([row(1), row(2)], 1)
    target, object = writer.place.target, writer.place.object
    info = describe(target, object)
    wanted = SchemaChange("name", "other_type", types.STRING, types.INT32, "retype", "--full-refresh", "destructive")
    (change,) = target.alter_statements(info, [wanted])
    if change.action == "fail":
        assert "drop the table" in change.note
        return
    narrow = (COLUMNS[0], Column("name", types.INT32))
    writer.write([{"id": 9, "name": 7}], 2, columns=narrow, alter=[change] if change.statement else (), replace=True)
    assert content(writer) == [(9, 7)]


@pytest.mark.smoke
def test_a_new_column_comes_with_the_commit_that_needs_it(writer: Writer) -> None:
    writer.write([row(1)], 1)
    target, object = writer.place.target, writer.place.object
    info = describe(target, object)
    added = SchemaChange("note", "new_column", None, types.STRING, "add", "on_schema_change.new_column: add")
    (change,) = target.alter_statements(info, [added])
    assert change.statement
    wider = (*COLUMNS, Column("note", types.STRING))
    writer.write([{**row(2), "note": "new"}], 2, columns=wider, alter=[change])
    assert content(writer, "id", "note") == [(1, None), (2, "new")]


@pytest.mark.long_on_spark
def test_a_row_count_that_is_not_the_staged_one_stops_the_commit(writer: Writer) -> None:
    if not writer.place.takes_parts:
        pytest.skip("Spark's own commit has all of its rows or none")
    with pytest.raises(Exception, match="expected"):
        writer.write([row(1)], 1, rows=2)
    assert writer.committed() is None
