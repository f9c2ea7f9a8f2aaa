"""What others have put into a target, or an earlier run has left there: it goes only where the plan has named it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.flows import Flow, delta_rows, postgres_rows, sqlite_rows, sqlite_script

STOPPED = 6
LOSE = ', on_schema_change: {dropped_column: "null"}'
CONNECTIONS = {
    "delta": "{type: delta, path: lake}",
    "postgres": "{type: postgres, url: '${secret:env:PG_URL}'}",
    "sqlite": "{type: sqlite, path: target.db}",
}
kinds = pytest.mark.parametrize(
    "kind", ["delta", "sqlite", pytest.param("postgres", marks=pytest.mark.full)]
)  # fmt: skip


class Shop(Flow):
    def __init__(self, folder: Path, kind: str, url: str) -> None:
        super().__init__(folder, {"PG_URL": url})
        self.kind, self.url = kind, url
        self.source("CREATE TABLE ev (id INTEGER PRIMARY KEY, note TEXT, at INTEGER, c TEXT)")
        self.source("INSERT INTO ev VALUES (1, 'a', 1, 'c1'), (2, 'b', 2, 'c2')")

    def source(self, script: str) -> None:
        sqlite_script(self.folder / "source.db", script)

    def table(self, mode: str, more: str = "") -> None:
        self.write(
            "version: 1\nflow: shop\nstate: state\nspark: {url: sail}\nconnections:\n"
            f"  src: {{type: sqlite, path: source.db}}\n  dst: {CONNECTIONS[self.kind]}\n"
            f'tables:\n  t: {{from: src:ev, to: "dst:t", {mode}{more}}}\n'
        )

    def rows(self, *columns: str) -> list[tuple[object, ...]]:
        query = f"SELECT {', '.join(columns)} FROM t"
        match self.kind:
            case "delta":
                return delta_rows(self.folder / "lake" / "t", columns)
            case "sqlite":
                return sqlite_rows(self.folder / "target.db", query)
            case _:
                return postgres_rows(self.url, query)


@kinds
def test_a_full_refresh_names_the_values_that_an_earlier_run_has_kept(
    kind: str, tmp_path: Path, postgres_database: str
) -> None:
    shop, mode = Shop(tmp_path, kind, postgres_database), "mode: merge, key: [id], cursor: {column: at}"
    shop.table(mode)
    shop.apply()
    shop.source("ALTER TABLE ev DROP COLUMN c; INSERT INTO ev VALUES (3, 'd', 3)")
    shop.apply()
    kept = [(1, "c1"), (2, "c2"), (3, None)]
    assert shop.rows("id", "c") == kept
    told = shop.apply("--full-refresh", "t", expect=STOPPED).out
    assert 'column "c" is not filled from the source, and its stored values would become null' in told
    shop.table(mode, LOSE)
    shop.apply("--full-refresh", "t")
    assert shop.rows("id", "c") == [(1, None), (2, None), (3, None)]
    assert shop.actions() == {"t": "none"}


def test_a_delta_table_that_is_replaced_goes_on_naming_columns_of_others(
    tmp_path: Path, postgres_database: str
) -> None:
    from deltalake import DeltaTable, Field
    from deltalake.schema import PrimitiveType

    def filled() -> None:
        DeltaTable(place).update(updates={"rem": "'R'"})

    shop, place = Shop(tmp_path, "delta", postgres_database), str(tmp_path / "lake" / "t")
    shop.table("mode: truncate")
    shop.apply()
    DeltaTable(place).alter.add_columns([Field("rem", PrimitiveType("string"), True)])
    filled()
    lost = 'column "rem" added in the target by someone else; replacing the content would lose its values'
    assert lost in shop.apply(expect=STOPPED).out
    for _ in range(2):
        shop.table("mode: truncate", LOSE)
        (told,) = shop.plan()["steps"][0]["schema"]
        assert (told["column"], told["class"]) == ("rem", "destructive") and "its values are lost" in told["note"]
        shop.apply()
        assert shop.rows("id", "rem") == [(1, None), (2, None)]
        filled()
        shop.table("mode: truncate")
        assert lost in shop.apply(expect=STOPPED).out
        assert shop.rows("id", "rem") == [(1, "R"), (2, "R")]
