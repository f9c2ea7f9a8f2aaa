"""What others have put into a target, or an earlier run has left there: it goes only where the plan has named it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.flows import Flow, sqlite_script
from tests.e2e.targets import ENV, SQL_KINDS, Databases, Kind, SqlPlace, kinds_with, place

STOPPED = 6
MERGE = "mode: merge, key: [id], cursor: {column: at}"
APPEND = "mode: append, cursor: {column: at}"
LOSE = ', on_schema_change: {dropped_column: "null"}'
kinds = pytest.mark.parametrize(
    "kind", ["delta", *(pytest.param(kind, marks=pytest.mark.full) for kind in kinds_with("merge") if kind != "delta")]
)


class Shop(Flow):
    def __init__(self, folder: Path, kind: Kind, databases: Databases) -> None:
        super().__init__(folder, ENV)
        self.there = place(kind, folder, databases).named("t")
        self.source("CREATE TABLE ev (id INTEGER PRIMARY KEY, note TEXT NOT NULL, at INTEGER, c TEXT)")
        self.source("INSERT INTO ev VALUES (1, 'a', 1, 'c1'), (2, 'b', 2, 'c2')")

    def source(self, script: str) -> None:
        sqlite_script(self.folder / "source.db", script)

    def table(self, mode: str, more: str = "") -> None:
        self.write(
            "version: 1\nflow: shop\nstate: state\nspark: {url: sail}\nconnections:\n"
            f"  src: {{type: sqlite, path: source.db}}\n  dst: {self.there.connection}\n"
            f'tables:\n  t: {{from: src:ev, to: "dst:{self.there.object}", {mode}{more}}}\n'
        )

    def target(self, script: str) -> None:
        assert isinstance(self.there, SqlPlace)
        self.there.run(script)

    def rows(self, *columns: str) -> list[tuple[object, ...]]:
        return self.there.rows(columns)


@pytest.mark.full
@kinds
def test_a_full_refresh_names_the_values_that_an_earlier_run_has_kept(
    kind: Kind, tmp_path: Path, databases: Databases
) -> None:
    shop = Shop(tmp_path, kind, databases)
    shop.table(MERGE)
    shop.apply()
    shop.source("ALTER TABLE ev DROP COLUMN c; INSERT INTO ev VALUES (3, 'd', 3)")
    shop.apply()
    kept = [(1, "c1"), (2, "c2"), (3, None)]
    assert shop.rows("id", "c") == kept
    told = shop.apply("--full-refresh", "t", expect=STOPPED).words
    assert 'column "c" is not filled from the source, and its stored values would become null' in told
    shop.table(MERGE, LOSE)
    shop.apply("--full-refresh", "t")
    assert shop.rows("id", "c") == [(1, None), (2, None), (3, None)]
    assert shop.actions() == {"t": "none"}


@pytest.mark.full
def test_a_delta_table_that_is_replaced_goes_on_naming_columns_of_others(tmp_path: Path, databases: Databases) -> None:
    from deltalake import DeltaTable, Field
    from deltalake.schema import PrimitiveType

    def filled() -> None:
        DeltaTable(place).update(updates={"rem": "'R'"})

    shop, place = Shop(tmp_path, "delta", databases), str(tmp_path / "lake" / "t")
    shop.table("mode: truncate")
    shop.apply()
    DeltaTable(place).alter.add_columns([Field("rem", PrimitiveType("string"), True)])
    filled()
    lost = 'column "rem" added in the target by someone else; replacing the content would lose its values'
    assert lost in shop.apply(expect=STOPPED).words
    for _ in range(2):
        shop.table("mode: truncate", LOSE)
        (told,) = shop.plan()["steps"][0]["schema"]
        assert (told["column"], told["class"]) == ("rem", "destructive") and "its values are lost" in told["note"]
        shop.apply()
        assert shop.rows("id", "rem") == [(1, None), (2, None)]
        filled()
        shop.table("mode: truncate")
        assert lost in shop.apply(expect=STOPPED).words
        assert shop.rows("id", "rem") == [(1, "R"), (2, "R")]


def adopted(folder: Path, kind: Kind, databases: Databases, mode: str, column: str, *more: str) -> Shop:
    """A table of somebody else's that flowctl has continued; then the source has lost ``note``."""
    shop = Shop(folder, kind, databases)
    shop.target(f'CREATE TABLE {{table}} (id bigint, {column}, "at" bigint, c text)')
    shop.table(mode)
    shop.run("state", "adopt", "flow.yaml", "t", "--yes", *more, expect=0)
    shop.apply()
    shop.source("ALTER TABLE ev DROP COLUMN note; INSERT INTO ev VALUES (3, 3, 'c3')")
    return shop


@pytest.mark.full
@pytest.mark.parametrize("kind", SQL_KINDS)
@pytest.mark.parametrize(
    ("mode", "more"),
    [pytest.param(MERGE, (), id="merge"), pytest.param(APPEND, ("--position", "beginning"), id="append")],
)
def test_a_dropped_column_with_a_default_keeps_it(
    kind: Kind, mode: str, more: tuple[str, ...], tmp_path: Path, databases: Databases
) -> None:
    shop = adopted(tmp_path, kind, databases, mode, "note text NOT NULL DEFAULT 'zz'", *more)
    if mode == APPEND:  # it tells rows of one position apart
        shop.run("state", "set", "flow.yaml", "t", "--position", "2", "--yes", expect=0)
    shop.apply()
    shop.source("INSERT INTO ev VALUES (4, 4, 'c4')")
    shop.apply()
    assert shop.rows("id", "note") == [(1, "a"), (2, "b"), (3, "zz"), (4, "zz")]
    with pytest.raises(Exception, match=r"(?i)not[ -]null|cannot be null"):
        shop.target("UPDATE {table} SET note = NULL")  # still refused


@pytest.mark.full
def test_sqlite_names_what_lets_a_required_column_go(tmp_path: Path, databases: Databases) -> None:
    shop = adopted(tmp_path, "sqlite", databases, MERGE, "note text NOT NULL")
    told = shop.apply(expect=STOPPED).words
    assert "Put it back, drop the column in the target, or copy the table there without that NOT NULL" in told, told
    copy = "CREATE TABLE u (id bigint, note text, at bigint, c text); INSERT INTO u SELECT * FROM t"
    shop.target(f"{copy}; DROP TABLE t; ALTER TABLE u RENAME TO t")
    shop.apply()
    assert shop.rows("id", "note") == [(1, "a"), (2, "b"), (3, None)]


@pytest.mark.full
def test_values_of_others_are_overwritten_only_where_that_is_accepted(tmp_path: Path, databases: Databases) -> None:
    shop = Shop(tmp_path, "sqlite", databases)
    shop.table(MERGE)
    shop.apply()
    shop.target("ALTER TABLE t ADD COLUMN d TEXT; UPDATE t SET d = 'precious'")
    shop.source("ALTER TABLE ev ADD COLUMN d TEXT; UPDATE ev SET at = 3 WHERE id = 1")
    told = shop.apply(expect=STOPPED).words
    assert "written from now on: its values are replaced" in told
    shop.table(MERGE, ", on_schema_change: {new_column: ignore}")
    shop.apply()
    kept = [(1, 3, "precious"), (2, 2, "precious")]
    assert shop.rows("id", "at", "d") == kept
    shop.source("UPDATE ev SET at = 4 WHERE id = 1")
    shop.table(MERGE)
    assert "--accept-definition" in shop.apply(expect=STOPPED).words
    assert shop.rows("id", "at", "d") == kept
    shop.run("state", "set", "flow.yaml", "t", "--accept-definition", "--yes", expect=0)
    shop.apply()
    assert shop.rows("id", "at", "d") == [(1, 4, None), (2, 2, "precious")]
    assert shop.actions() == {"t": "none"}
