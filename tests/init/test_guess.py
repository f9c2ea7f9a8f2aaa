"""Key, cursor and mode of a table, by what its source says about it."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import pytest

from flowctl.connectors.survey import Details, Index, Surveyed
from flowctl.init.decision import Decision
from flowctl.init.guess import SMALL_BYTES, SMALL_ROWS, Answers, Setting, decide, questions
from flowctl.model import types
from flowctl.model.table_info import Column, ObjectName
from tests.init.surveys import BY_UPDATED, CREATED, ID, NOW, UPDATED, failing, newest, table

OLD = newest(NOW - dt.timedelta(hours=2))
LARGE = SMALL_ROWS + 1


def decided(surveyed: Surveyed, answers: Answers | None = None, setting: Setting | None = None) -> Decision:
    return decide("t", surveyed, answers or {}, setting or Setting("cursor"))


def test_a_key_and_a_time_of_the_last_change_make_a_merge() -> None:
    found = decided(table(ID, UPDATED, key=("id",), indexes=(BY_UPDATED,)), {"updated_at": OLD})
    assert (found.mode, found.key, found.cursor, found.reads_nulls) == ("merge", ("id",), "updated_at", False)
    assert found.reason == "primary key id; cursor updated_at: indexed, not null, newest 2.0 h old"
    assert found.decide == ()


@pytest.mark.parametrize(
    "name",
    [
        "updated_at",
        "last_update",
        "LastModified",
        "modifiedDate",
        "date_changed",
        "UPDATED",
        "mtime",
        "row_upd",
        "touched",
    ],
)
def test_names_of_a_time_of_change(name: str) -> None:
    found = decided(table(ID, Column(name, types.TIMESTAMP_NTZ, nullable=False), key=("id",)))
    assert (found.mode, found.cursor) == ("merge", name)


@pytest.mark.parametrize("name", ["created_at", "exchange_rate_at", "ordered_at", "valid_from"])
def test_names_of_other_times(name: str) -> None:
    """Merging by the time at which rows were created would miss all updates."""
    found = decided(table(ID, Column(name, types.TIMESTAMP, nullable=False), key=("id",)))
    assert (found.mode, found.cursor) == ("truncate", "")


@pytest.mark.parametrize("kind", [types.STRING, types.INT64, types.BINARY])
def test_a_time_of_change_is_a_time(kind: types.DataType) -> None:
    assert decided(table(ID, replace(UPDATED, type=kind), key=("id",))).mode == "truncate"


def test_an_indexed_cursor_that_is_never_null_comes_first() -> None:
    plain, nullable = Column("changed_at", types.TIMESTAMP, nullable=False), replace(UPDATED, nullable=True)
    assert decided(table(ID, nullable, plain, key=("id",))).cursor == "changed_at"
    assert (
        decided(table(ID, nullable, plain, key=("id",), indexes=(BY_UPDATED,)), {"updated_at": OLD}).cursor
        == "updated_at"
    )
    has_null = replace(OLD, has_null_cursor=True)
    answers = {"updated_at": has_null}
    assert decided(table(ID, nullable, plain, key=("id",), indexes=(BY_UPDATED,)), answers).cursor == "changed_at"


def test_a_unique_index_without_nulls_is_a_key() -> None:
    code, number = Column("code", types.STRING, nullable=False), Column("number", types.STRING)
    indexes = (Index(("number",), is_unique=True), Index(("id", "code"), is_unique=True), Index(("code",)))
    found = decided(table(ID, code, number, UPDATED, indexes=indexes))
    assert (found.mode, found.key) == ("merge", ("id", "code"))
    assert found.reason.startswith("unique and not null: id, code; cursor updated_at")


def test_a_primary_key_with_nulls_is_none() -> None:
    """SQLite allows them; merge would stop."""
    surveyed = table(replace(ID, nullable=True, type=types.STRING), UPDATED, key=("id",))
    assert [column.name for column in questions(surveyed)] == ["updated_at", "id"]
    assert decided(surveyed, {"id": newest("a", types.STRING)}).key == ("id",)
    found = decided(surveyed, {"id": newest("a", types.STRING, has_null=True)})
    assert (found.mode, found.key) == ("truncate", ())
    assert "the primary key has nulls in id" in found.reason


@pytest.mark.parametrize(
    "answer",
    [
        newest(NOW + dt.timedelta(days=400)),
        newest(None, has_null=True),
        failing("the greatest value of updated_at is infinity"),
    ],
    ids=["future", "only nulls", "infinite"],
)
def test_a_cursor_that_would_freeze_the_table_is_not_used(answer: object) -> None:
    surveyed = table(ID, replace(UPDATED, nullable=True), key=("id",), indexes=(BY_UPDATED,))
    found = decided(surveyed, {"updated_at": answer})  # type: ignore[dict-item]
    assert (found.mode, found.cursor) == ("truncate", "")


def test_a_column_whose_values_cannot_be_read_is_read_as_text() -> None:
    found = decided(table(ID, UPDATED, key=("id",)), {"updated_at": failing("updated_at is infinity")})
    assert found.as_text == ("updated_at",)
    assert found.decide == ("read as text: updated_at is infinity",)


def test_a_cursor_with_nulls_reads_them_in_every_run() -> None:
    nullable = replace(UPDATED, nullable=True)
    found = decided(table(ID, nullable, key=("id",)), {"updated_at": replace(OLD, has_null_cursor=True)})
    assert (found.mode, found.reads_nulls) == ("merge", True)
    assert decided(table(ID, nullable, key=("id",)), {"updated_at": OLD}).reads_nulls is False
    assert decided(table(ID, nullable, key=("id",), rows=LARGE)).reads_nulls is True  # not looked up


def test_a_log_with_a_numbered_key_is_appended_to() -> None:
    found = decided(table(ID, CREATED, name="audit_log", key=("id",), numbered=("id",)))
    assert (found.mode, found.key, found.cursor) == ("append", (), "id")
    assert found.decide == ("append reads no row again; if rows are updated, use mode merge with key: [id]",)


def test_a_large_table_without_a_key_is_appended_to_by_its_time_of_creation() -> None:
    found = decided(table(CREATED, rows=LARGE, indexes=(Index(("created_at",)),)), {"created_at": OLD})
    assert (found.mode, found.cursor) == ("append", "created_at")
    assert decided(table(CREATED)).mode == "truncate"


def test_a_large_table_whose_changes_show_nowhere_is_read_in_full() -> None:
    """Never in a way that loses updates without a word."""
    found = decided(table(ID, key=("id",), numbered=("id",), rows=LARGE))
    assert (found.mode, found.key, found.cursor) == ("merge", ("id",), "")
    assert found.decide == ("if rows are never updated, use mode append with cursor: {column: id}",)
    assert decided(table(ID, rows=LARGE)).mode == "truncate"


@pytest.mark.parametrize(
    ("rows", "size", "mode"),
    [
        (SMALL_ROWS, SMALL_BYTES * 9, "truncate"),
        (LARGE, 1, "merge"),
        (None, SMALL_BYTES + 1, "merge"),
        (None, 1, "truncate"),
        (None, None, "truncate"),
    ],
)
def test_size(rows: int | None, size: int | None, mode: str) -> None:
    assert decided(table(ID, key=("id",), rows=rows, size=size)).mode == mode


def test_large_tables_are_asked_only_where_an_index_answers() -> None:
    assert questions(table(ID, UPDATED, rows=LARGE)) == ()
    assert questions(table(ID, UPDATED, rows=LARGE, indexes=(Index(("id", "updated_at")),))) == ()
    assert questions(table(ID, UPDATED, rows=LARGE, indexes=(BY_UPDATED,))) == (UPDATED,)


def test_columns_without_rights_are_left_out_and_decide_nothing() -> None:
    found = decided(table(ID, UPDATED, key=("id",), unreadable=("id", "updated_at")))
    assert (found.mode, found.key, found.cursor, found.exclude) == ("truncate", (), "", ("id", "updated_at"))
    assert "left out, as this user may not read them: id, updated_at" in found.decide


def test_a_table_that_cannot_be_read_is_left_out_with_the_reason() -> None:
    surveyed = Surveyed(ObjectName(("t",)), None, Details(refused="this user may not read it"))
    assert questions(surveyed) == ()
    assert decided(surveyed).left_out == "this user may not read it"


def test_names_that_the_target_refuses() -> None:
    """The key has names of the target, the cursor one of the source."""
    spaced = [replace(ID, name="Order Id"), Column("order_id", types.INT64), replace(UPDATED, name="updated at")]
    setting = Setting("cursor", lambda name: "a space" if " " in name else None)
    found = decided(table(*spaced, key=("Order Id",)), setting=setting)
    assert found.rename == {"Order Id": "Order_Id_2", "updated at": "updated_at"}
    assert (found.key, found.cursor) == (("Order_Id_2",), "updated at")


def test_files() -> None:
    setting, surveyed = Setting("files"), table(ID, UPDATED)
    assert decided(surveyed, setting=setting).mode == "truncate"
    assert decided(replace(surveyed, is_many=True), setting=setting).mode == "append"


def test_a_source_that_reports_no_indexes() -> None:
    """Nothing is said of them, and only small tables are asked."""
    surveyed = table(ID, UPDATED, key=("id",), rows=LARGE)
    assert surveyed.details.indexes is None
    assert decided(surveyed).reason == "primary key id; cursor updated_at: not null"
    assert questions(surveyed) == ()
