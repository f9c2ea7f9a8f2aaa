"""Names of tables that a target cannot have, as the plan says it."""

from __future__ import annotations

import pytest

from flowctl.connectors import registry
from flowctl.diagnostics import Mark
from flowctl.model.table_info import ObjectName
from flowctl.spec.spec import Connection

PLACES = {
    "delta": {"path": "lake"},
    "postgres": {"url": "postgresql://etl@db/shop"},
    "sqlite": {"path": "shop.db"},
    "duckdb": {"path": "shop.duckdb"},
}


@pytest.mark.parametrize(
    ("target", "name", "refused"),
    [
        ("delta", "a`b", False),
        ("delta", "100%", False),
        ("delta", "%s", False),
        ("delta", "100%25", True),
        ("delta", "a\\b", True),
        ("delta", "a\nb", True),
        ("delta", "n" * 255, False),
        ("delta", "n" * 256, True),
        ("delta", f"{'n' * 200}/{'n' * 200}", False),
        ("postgres", "ä" * 31, False),
        ("postgres", "ä" * 32, True),
        ("postgres", 'a "b".c', False),
        ("sqlite", "n" * 1000, False),
        ("sqlite", "SQLite_x", True),
        ("duckdb", "n" * 5000, False),
        ("duckdb", "a\0b", True),
    ],
)
def test_names_of_tables(target: str, name: str, refused: bool) -> None:
    connection = Connection("to", target, PLACES[target], Mark("spec.yaml", 1))
    assert (registry.refuse_name(connection, ObjectName((name,)), "/specs") is not None) == refused
