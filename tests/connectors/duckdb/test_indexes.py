"""The columns of an index, as a survey lists them and as an error names them."""

from __future__ import annotations

import duckdb
import pytest

from flowctl.connectors.duckdb import catalog, refusals
from flowctl.connectors.survey import Index
from flowctl.model.table_info import ObjectName
from flowctl.sql.dialects import quoted

TABLE = ObjectName(("t",))
KINDS = ("INTEGER",) * 2 + ("VARCHAR",) * 9


@pytest.mark.parametrize(
    ("made", "columns"),
    [
        ("id", ["id"]),
        ('id, "b c"', ["id", "b c"]),
        ('"q""q", "o\'x", "x, y", "br]", "(w)", "ba\\ck"', ['q"q', "o'x", "x, y", "br]", "(w)", "ba\\ck"]),
        ('"é", "select"', ["é", "select"]),
        ("lower(s)", []),
        ("id, (s || 'it''s, \"x\"')", []),
        ('concat("q""q", \'a"b\'), "b c"', []),
        ('((id + "b c") * (id + 1))', []),
    ],
)
def test_an_index_is_known_by_its_columns(made: str, columns: list[str]) -> None:
    names = ("id", "b c", 'q"q', "o'x", "x, y", "br]", "(w)", "ba\\ck", "é", "select", "s")
    listed = ", ".join(f"{quoted(name, 'duckdb')} {kind}" for name, kind in zip(names, KINDS, strict=True))
    with duckdb.connect() as connection:
        connection.execute(f"CREATE TABLE t ({listed}); CREATE UNIQUE INDEX one ON t ({made})")
        indexes = catalog.details(connection, [TABLE])[TABLE].indexes
        assert indexes == ((Index(tuple(columns), is_unique=True),) if columns else ())
        row = "INSERT INTO t SELECT 1, 2, 'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i'"
        connection.execute(row)
        with pytest.raises(duckdb.Error) as refused:
            connection.execute(row)
        constraint = refusals.violated_constraint(connection, TABLE, refused.value)
        assert constraint is not None and constraint.name == "one"
