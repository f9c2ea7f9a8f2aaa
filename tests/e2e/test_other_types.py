"""Columns that the spec reads as another type than their own, of a table and of a query whose types are declared: the
same value, or refused by name with a next step that works."""

from __future__ import annotations

import datetime as dt
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.flows import Flow, duckdb_rows, mysql_rows
from tests.services.mariadb import PASSWORD

#: Column: MySQL's type, a value, the declared type, what arrives; None: it is refused.
COLUMNS: dict[str, tuple[str, str, str, Any]] = {
    "flag": ("TINYINT(1)", "7", "tinyint", 7),
    "whole": ("DECIMAL(10,2)", "2.00", "int", 2),
    "half": ("DECIMAL(10,2)", "2.50", "int", None),
    "long_one": ("DECIMAL(50,10)", "1.5", "decimal(38,10)", Decimal("1.5")),
    "day": ("DATETIME", "'2024-02-29'", "date", dt.date(2024, 2, 29)),
    "noon": ("DATETIME", "'2024-02-29 12:00'", "date", None),
    "number": ("TEXT", "'15'", "bigint", 15),
    "hexadecimal": ("TEXT", "'0x1F'", "bigint", None),
    "large": ("BIGINT", "9007199254740993", "double", None),
    "rounded": ("BIGINT", "9007199254740992", "double", 2.0**53),
    "token": ("TEXT", "'123456789012345678901.5'", "decimal(38,18)", None),
    "exact": ("DOUBLE", "0.1", "decimal(5,2)", Decimal("0.1")),
}


@pytest.mark.parametrize("form", ["table", pytest.param("query", marks=pytest.mark.full)])
def test_other_types_of_mysql(form: str, tmp_path: Path, mysql_database: str) -> None:
    columns = ", ".join(f"`{name}` {native}" for name, (native, *_) in COLUMNS.items())
    values = ", ".join(value for _, value, *_ in COLUMNS.values())
    mysql_rows(mysql_database, f"CREATE TABLE t (id INT PRIMARY KEY, {columns}); INSERT INTO t VALUES (1, {values});")
    flow = Flow(tmp_path, {"PASSWORD": PASSWORD})
    write(flow, mysql_database, form, {name: kind for name, (*_, kind, _) in COLUMNS.items()})
    flow.apply(expect=4)
    rows = {name: duckdb_rows(tmp_path / "out.duckdb", f"SELECT {name} FROM {name}") for name in there(tmp_path)}
    assert rows == {name: [(value,)] for name, (*_, value) in COLUMNS.items() if value is not None}
    refused = [name for name, (*_, value) in COLUMNS.items() if value is None]
    write(flow, mysql_database, form, dict.fromkeys(refused, "string"))  # as the next step says
    flow.apply()
    assert set(there(tmp_path)) == set(COLUMNS)


@pytest.mark.full
def test_flags_that_are_other_numbers_lead_to_a_type_that_holds_them(tmp_path: Path, mysql_database: str) -> None:
    mysql_rows(mysql_database, "CREATE TABLE t (id INT PRIMARY KEY, flag TINYINT(1)); INSERT INTO t VALUES (1, 7);")
    flow = Flow(tmp_path, {"PASSWORD": PASSWORD})
    write(flow, mysql_database, "table", {"flag": ""})
    assert "columns: {types: {flag: tinyint}}" in flow.apply(expect=4).words
    write(flow, mysql_database, "table", {"flag": "tinyint"})
    flow.apply()
    assert duckdb_rows(tmp_path / "out.duckdb", "SELECT * FROM flag") == [(1, 7)]


def write(flow: Flow, url: str, form: str, kinds: dict[str, str]) -> None:
    tables: dict[str, Any] = {}
    for name, kind in kinds.items():
        declared = {name: kind} if kind else {}
        rules: dict[str, Any] = {"include": ["id", name], "types": declared}
        of: Any = "db:t"
        if form == "query":
            of = {"connection": "db", "query": f"SELECT id, {name} FROM t"}
            rules = {"types": {"id": "int", **declared}}
        tables[name] = {"from": of, "to": f"out:{name}", "mode": "truncate", "columns": rules}
    connections = {
        "db": {"type": "mysql", "url": url.replace(f":{PASSWORD}@", ":${secret:env:PASSWORD}@")},
        "out": {"type": "duckdb", "path": "out.duckdb"},
    }
    spec = {"version": 1, "flow": "other_types", "state": "state", "spark": {"url": "sail"}}
    flow.write(json.dumps({**spec, "connections": connections, "tables": tables}))


def there(folder: Path) -> list[str]:
    tables = duckdb_rows(folder / "out.duckdb", "SELECT table_name FROM duckdb_tables()")
    return [name for (name,) in tables if not str(name).startswith("_flowctl")]
