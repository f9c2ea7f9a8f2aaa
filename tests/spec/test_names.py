"""How objects are written, in databases and below paths."""

from __future__ import annotations

import pytest

from flowctl.spec.names import is_pattern, object_parts, pattern_ids, split_reference


@pytest.mark.parametrize(
    ("text", "expected"),
    [("pg:public.orders", ("pg", "public.orders")), ("lake", ("lake", "")), ("pg:a:b", ("pg", "a:b"))],
)
def test_references_split_at_the_first_colon(text: str, expected: tuple[str, str]) -> None:
    assert split_reference(text) == expected


@pytest.mark.parametrize(
    ("text", "parts", "glob"),
    [
        ("orders", ("orders",), False),
        ("public.Orders", ("public", "Orders"), False),
        ('public."my.table"', ("public", "my.table"), False),
        ('"a ""b"" c"', ('a "b" c',), False),
        ("public.*", ("public", "*"), True),
        ("raw_?.o*", ("raw_?", "o*"), True),
        ('public."*"', ("public", "*"), False),
        ("${schema}.${table}", ("${schema}", "${table}"), False),
    ],
)
def test_dotted_names(text: str, parts: tuple[str, ...], glob: bool) -> None:
    assert object_parts(text, "dotted") == (parts, glob)


@pytest.mark.parametrize("text", ["a..b", ".a", "a.", 'a."b', "a b", '"a"b', '"x*".y*'])
def test_bad_dotted_names(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a table name|mixes a glob"):
        object_parts(text, "dotted")


@pytest.mark.parametrize(
    ("text", "parts", "glob"),
    [
        ("sales/orders", ("sales/orders",), False),
        ("sales/", ("sales",), False),
        ("in/*.csv", ("in/*.csv",), True),
        ("a.b.c", ("a.b.c",), False),
    ],
)
def test_paths(text: str, parts: tuple[str, ...], glob: bool) -> None:
    assert object_parts(text, "path") == (parts, glob)


@pytest.mark.parametrize("text", ["../x", "a/../b", "/etc", "s3://lake/x", "/"])
def test_bad_paths(text: str) -> None:
    with pytest.raises(ValueError, match=r"not relative|leaves|is empty"):
        object_parts(text, "path")


def test_ids_that_a_pattern_makes() -> None:
    bind = pattern_ids("raw_${schema}_${table}.v1")
    assert bind("raw_public_orders.v1") == {"schema": "public", "table": "orders"}
    assert bind("raw_public_orders_v1") is None
    assert is_pattern("raw_${table}")
    assert not is_pattern("raw_table")
