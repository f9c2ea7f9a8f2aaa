"""Columns of a user whose names flowctl's own queries might use: as key, cursor and plain columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.e2e.flows import Flow, sqlite_rows, sqlite_script
from tests.e2e.target_place import quoted
from tests.e2e.targets import ENV, Databases, Kind, kinds_with, place

SPEC = """
version: 1
flow: names
state: state
spark: {{url: sail}}
connections:
  src: {{type: sqlite, path: names.db}}
  dst: {connection}
tables:
"""
RULES = "dedupe: fail, deletes: {detect: missing_keys}, guard: {max_deleted: 100%}"


@dataclass(frozen=True)
class Named:
    """A table of the source."""

    name: str
    key: Sequence[str]
    cursor: str
    others: Sequence[str]

    @property
    def columns(self) -> list[str]:
        return [*self.key, self.cursor, *self.others]

    def create(self) -> str:
        """With three rows, 1 to 3."""
        kinds = [f"{quoted(name)} INTEGER NOT NULL" for name in self.key] + [
            f"{quoted(self.cursor)} TIMESTAMP NOT NULL"
        ]
        listed = ", ".join([*kinds, *(f"{quoted(name)} TEXT" for name in self.others)])
        rows = [
            ", ".join(
                [*(str(n) for _ in self.key), f"'2026-01-0{n} 00:00:00'", *(f"'{name} {n}'" for name in self.others)]
            )
            for n in (1, 2, 3)
        ]
        values = ", ".join(f"({row})" for row in rows)
        return f"CREATE TABLE {self.name} ({listed}); INSERT INTO {self.name} VALUES {values};"

    def change(self) -> str:
        """Row 2 has another value, row 3 is gone."""
        key, other = quoted(self.key[0]), quoted(self.others[0])
        return (
            f"UPDATE {self.name} SET {other} = 'new', {quoted(self.cursor)} = '2026-02-01 00:00:00' WHERE {key} = 2;"
            f"DELETE FROM {self.name} WHERE {key} = 3;"
        )

    def tables(self, object: str) -> str:
        keys = ", ".join(map(quoted, self.key))
        check = f"expect: [{{column: {quoted(self.others[0])}, unique: true}}]"
        both = f"key: [{keys}], cursor: {{column: {quoted(self.cursor)}}}, {RULES}, {check}"
        merge, scd2 = f"m_{self.name}", f"s_{self.name}"
        history = f"scd2: {{valid_from: {quoted(self.cursor)}}}"
        return (
            f'  {merge}: {{from: src:{self.name}, to: "dst:{object}{merge}", mode: merge, {both}}}\n'
            f'  {scd2}: {{from: src:{self.name}, to: "dst:{object}{scd2}", mode: scd2, {both}, {history}}}\n'
        )


TABLES = (
    Named(
        "plain", ["n"], "count", ["_action", "t", "s", "d", "value", "key", "row", "index", "rows", "deletes", "l", "r"]
    ),
    Named("cased", ["N", "row"], "value", ["index", "key", "COUNT", "_ACTION", "T", "S", "D", "Rows"]),
    Named("keyed", ["_action", "t", "s", "d"], "key", ["n", "value", "count"]),
)


@pytest.mark.full
@pytest.mark.parametrize("kind", kinds_with("merge", "scd2"))
def test_no_name_of_flowctls_own_meets_a_column(kind: Kind, tmp_path: Path, databases: Databases) -> None:
    """DuckDB wrote nothing, without an error, where a column was called as the one that flowctl added."""
    flow, target = Flow(tmp_path, ENV), place(kind, tmp_path, databases)
    source = tmp_path / "names.db"
    prefix = target.object.removesuffix(target.name)
    flow.write(SPEC.format(connection=target.connection) + "".join(one.tables(prefix) for one in TABLES))
    sqlite_script(source, "".join(one.create() for one in TABLES))
    flow.apply()
    sqlite_script(source, "".join(one.change() for one in TABLES))
    effects = {step["id"]: step["effects"] for step in flow.plan("--effects")["steps"]}
    flow.apply()
    for one in TABLES:
        names = [*one.key, *one.others]
        rows = sqlite_rows(source, f"SELECT {', '.join(map(quoted, names))} FROM {one.name}")
        deleted = tuple([3] * len(one.key) + [f"{name} 3" for name in one.others])
        assert target.named(f"m_{one.name}").rows(names) == sorted([*rows, deleted], key=repr)
        history = target.named(f"s_{one.name}").rows([*names, "is_current"])
        assert sorted((row[:-1] for row in history if row[-1]), key=repr) == rows
        assert [effects[f"m_{one.name}"][name] for name in ("inserted", "updated", "deleted")] == [0, 1, 1]
