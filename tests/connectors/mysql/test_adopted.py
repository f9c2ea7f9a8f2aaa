"""Tables of somebody else's: their columns number rows, or compare, write and convert texts in their own ways."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from typing import Any

import pytest

from flowctl.connectors.mysql.session import MysqlSession
from flowctl.connectors.target import DETECTED_COLUMN, OP_COLUMN
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.sql.versioning import OWN_COLUMNS
from tests.connectors.mysql.test_target import is_nested
from tests.connectors.test_target_history import COLUMNS as HISTORY
from tests.connectors.writing import Writer, upserts

pytestmark = [pytest.mark.long_on_spark]

NUMBERED = (Column("id", types.INT32), Column("s", types.STRING))


@pytest.mark.parametrize("takes_files", [True, False])
def test_a_zero_is_no_request_for_a_number(writer: Writer, takes_files: bool, request: pytest.FixtureRequest) -> None:
    """For either way of loading; again finds the rows that are there."""
    if not takes_files:
        request.getfixturevalue("takes_no_files")
    writer.place.execute("CREATE TABLE {table} (id INT AUTO_INCREMENT PRIMARY KEY, s VARCHAR(20))")
    rows = upserts(*({"id": id, "s": f"row {id}"} for id in range(3)))
    for seq, inserted in ((1, 3), (2, 0)):
        counts = writer.write(rows, seq, "merge", columns=NUMBERED, compared=("s",), in_memory=True).counts
        assert (counts.inserted, counts.updated) == (inserted, 0)
    assert sorted(writer.place.read(["id"])) == [(0,), (1,), (2,)]
    writer.write([{"id": id, "s": "again"} for id in (0, 5)], 3, "truncate", columns=NUMBERED, replace=True)
    assert sorted(writer.place.read(["id"])) == [(0,), (5,)]


COLLATED = {
    "by codes": "VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    "long": "LONGTEXT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    "fixed": "CHAR(9) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    "member": "ENUM('a', 'A', 'b', 'c') CHARACTER SET utf8mb4 COLLATE utf8mb4_bin",
    "two bytes": "VARCHAR(20) CHARACTER SET ucs2 COLLATE ucs2_bin",
    "utf16": "VARCHAR(20) CHARACTER SET utf16 COLLATE utf16_general_ci",
    "latin1": "VARCHAR(20) CHARACTER SET latin1 COLLATE latin1_bin",
    "ignores case": "VARCHAR(20) CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci",
}
#: One that the server does not mix with flowctl's, one that it does, and one of another length; others in the long run.
COLLATIONS = [
    pytest.param(declared, id=name, marks=() if name in ("by codes", "ignores case", "utf16") else pytest.mark.full)
    for name, declared in COLLATED.items()
]
TEXTS = (Column("k", types.STRING), Column("v", types.STRING))


def pads(declared: str) -> bool:
    return declared.startswith(("CHAR(", "ENUM"))


@pytest.mark.parametrize("declared", COLLATIONS)
def test_a_merge_compares_all_of_a_text_whatever_its_collation(writer: Writer, declared: str) -> None:
    """As a key and as a value: letters' case counts, and so do blanks at the end where the column keeps them."""

    def merge(seq: int, *rows: tuple[str, str | None]) -> tuple[int | None, ...]:
        changes = [{"k": k, "v": v, OP_COLUMN: "U" if v else "D"} for k, v in rows]
        counts = writer.write(changes, seq, "merge", columns=TEXTS, key=("k",), compared=("v",), in_memory=True).counts
        return (counts.inserted, counts.updated, counts.deleted)

    writer.place.execute(f"CREATE TABLE {{table}} (k {declared}, v {declared})")
    other = "A" if pads(declared) else "a "
    assert merge(1, ("a", "a"), ("A", "b")) == (2, 0, 0)
    assert merge(2, ("a", "a"), ("A", "b")) == (0, 0, 0)
    assert merge(3, ("a", other), ("A", "b"), ("b", "c")) == (1, 1, 0)
    assert merge(4, ("a", other), ("A", None)) == (0, 0, 1)
    assert sorted(writer.place.read(["k", "v"])) == [("a", other), ("b", "c")]
    if not pads(declared):
        assert merge(5, ("a ", "c"), ("a", None)) == (1, 0, 1)
        assert sorted(writer.place.read(["k", "v"])) == [("a ", "c"), ("b", "c")]


@pytest.mark.parametrize("of_others", ["", pytest.param(", extra INT DEFAULT 7", marks=pytest.mark.full)])
@pytest.mark.parametrize("declared", COLLATIONS)
def test_so_does_a_history(writer: Writer, declared: str, of_others: str) -> None:
    columns = (*TEXTS, *(column for column in HISTORY if column.name in OWN_COLUMNS))

    def versions(seq: int, *rows: tuple[str, str | None]) -> list[tuple[Any, ...]]:
        at = dt.datetime(2026, 1, seq, tzinfo=dt.UTC)
        batch = [
            {"k": k, "v": v, "valid_from": at, "row_hash": v and f"#{v}#", OP_COLUMN: "U" if v else "D",
             DETECTED_COLUMN: False}
            for k, v in rows
        ]  # fmt: skip
        writer.write(batch, seq, "scd2", columns=columns, key=("k",), compared=("v",), in_memory=True)
        return sorted((k, v, bool(now)) for k, v, now in writer.place.read(["k", "v", "is_current"]))

    own = "valid_from DATETIME(6) COMMENT 'timestamp in UTC', valid_to DATETIME(6) COMMENT 'timestamp in UTC'"
    hashed = f"is_current TINYINT(1), row_hash {COLLATED['by codes']}"
    writer.place.execute(f"CREATE TABLE {{table}} (k {declared}, v {declared}, {own}, {hashed}{of_others})")
    other = "A" if pads(declared) else "a "
    assert versions(1, ("a", "a"), ("A", "b")) == [("A", "b", True), ("a", "a", True)]
    assert versions(2, ("a", "a"), ("A", "b")) == [("A", "b", True), ("a", "a", True)]
    changed = [("A", "b", False), *sorted([("a", "a", False), ("a", other, True)])]
    assert versions(3, ("a", other), ("A", None)) == changed


def test_json_is_merged_as_its_text(writer: Writer) -> None:
    columns = (Column("id", types.INT32), Column("j", types.STRING), Column("a", types.Array(types.INT32)))
    writer.place.execute("CREATE TABLE {table} (id INT, j JSON, a JSON COMMENT 'JSON array<int>')")
    for seq, text, updated in ((1, '{"a": 1}', 0), (2, '{"a": 1}', 0), (3, '{"a":1}', 1)):
        rows = upserts({"id": 1, "j": text, "a": [1, 2]})
        assert writer.write(rows, seq, "merge", columns=columns, in_memory=True).counts.updated == updated
    assert writer.place.read(["id", "j", "a"]) == [(1, '{"a":1}', "[1,2]")]


def test_rows_of_such_keys_are_found_by_a_hash_or_an_index(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    writer.place.execute(f"CREATE TABLE {{table}} (k {COLLATED['by codes']}, v {COLLATED['by codes']})")
    rows = [{"k": str(at), "v": "a", OP_COLUMN: "U"} for at in range(3000)]
    merged: dict[str, Any] = {"columns": TEXTS, "key": ("k",), "compared": ("v",), "in_memory": True}
    writer.write(rows, 1, "merge", **merged)
    steps: list[Any] = []
    execute = MysqlSession.execute

    def explained(session: MysqlSession, statement: str, parameters: Sequence[Any] = ()) -> int:
        if "_flowctl_difference" in statement and not statement.startswith("DROP"):
            query = statement.removeprefix("CREATE TEMPORARY TABLE _flowctl_difference AS ")
            steps.extend(session.fetch(f"EXPLAIN {query}"))
        return execute(session, statement, parameters)

    monkeypatch.setattr(MysqlSession, "execute", explained)
    writer.write([*({**row, "v": "b"} for row in rows[1:]), {**rows[0], OP_COLUMN: "D"}], 2, "merge", **merged)
    assert len(steps) >= 6 and [step for step in steps if is_nested(step)] == []


UUID = "123e4567-e89b-12d3-a456-426614174000"


@pytest.mark.parametrize(
    ("native", "own", "others"),
    [
        ("uuid", UUID, [UUID.upper(), UUID.replace("-", "")]),
        ("inet6", "::ffff:1.2.3.4", ["::FFFF:1.2.3.4", "0:0:0:0:0:ffff:1.2.3.4"]),
        ("inet4", "1.2.3.4", []),
    ],
)
def test_a_text_that_its_type_would_write_otherwise_stops_the_table(
    writer: Writer, native: str, own: str, others: Sequence[str]
) -> None:
    """Two texts of one key, too: each would be a row of its own."""
    writer.place.execute(f"CREATE TABLE {{table}} (k {native}, v {native})")
    target = writer.place.target
    assert [one.name for one in target.limited_columns(writer.info(), {"k", "v"})] == ["k", "v"]
    merged: dict[str, Any] = {"columns": TEXTS, "key": ("k",), "compared": ("v",), "in_memory": True}
    for other in others:
        for row in ({"k": own, "v": other}, {"k": other, "v": own}):
            rows = [{**row, OP_COLUMN: "U"}, {"k": own, "v": own, OP_COLUMN: "U"}]
            with pytest.raises(TableError, match=f"{native}.* would change a value"):
                writer.write(rows, 1, "merge", **merged)
    for seq, inserted in ((1, 1), (2, 0)):
        counts = writer.write([{"k": own, "v": own, OP_COLUMN: "U"}], seq, "merge", **merged).counts
        assert (counts.inserted, counts.updated) == (inserted, 0)
