"""What `flowctl init` learns of PostgreSQL's tables, from which it takes their keys."""

from __future__ import annotations

from typing import Any

import psycopg

from flowctl.connectors.postgres.details import details
from flowctl.model.table_info import ObjectName


def test_no_index_of_a_table_with_children_is_unique(database: psycopg.Connection[Any]) -> None:
    """A read of it has their rows, with the same ids; those of partitions are in the index of their parent."""
    database.execute(
        "CREATE TABLE parent (id int PRIMARY KEY); CREATE TABLE child (PRIMARY KEY (id)) INHERITS (parent);"
        "INSERT INTO parent VALUES (1); INSERT INTO child VALUES (1);"
        "CREATE TABLE whole (id int PRIMARY KEY) PARTITION BY LIST (id); CREATE TABLE part PARTITION OF whole DEFAULT"
    )
    names = [ObjectName(("public", name)) for name in ("parent", "child", "whole", "part")]
    found = details(database, names)
    are_unique = {str(name): [index.is_unique for index in found[name].indexes or ()] for name in names}
    assert are_unique == {
        "public.parent": [False],
        "public.child": [True],
        "public.whole": [True],
        "public.part": [True],
    }
