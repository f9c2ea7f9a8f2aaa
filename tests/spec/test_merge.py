"""defaults < patterns < exact entries."""

from __future__ import annotations

from typing import Any

from flowctl.spec.document import parse_document
from flowctl.spec.merge import effective_tables
from flowctl.spec.node import Node, leaves, plain


def merged(text: str) -> dict[str, Any]:
    return {id: plain(node) for id, node in nodes(text).items()}


def nodes(text: str) -> dict[str, Node]:
    root, diagnostics = parse_document(text, "flow.yaml")
    assert root is not None
    assert diagnostics == []
    return effective_tables(root)


def test_maps_merge_and_lists_replace() -> None:
    tables = merged("""
defaults: {guard: {allow_empty: false, max_deleted: 5%}, columns: {exclude: [a, b]}}
tables:
  t: {guard: {max_deleted: 1%}, columns: {exclude: [c]}}
""")
    assert tables["t"] == {"guard": {"allow_empty": False, "max_deleted": "1%"}, "columns": {"exclude": ["c"]}}


def test_null_removes() -> None:
    tables = merged("""
defaults: {guard: {allow_empty: false, max_deleted: 5%}, where: x}
tables:
  t: {where: null, guard: {allow_empty: null}, cursor: null}
""")
    assert tables["t"] == {"guard": {"max_deleted": "5%"}}


def test_from_and_expect_replace_whole() -> None:
    tables = merged("""
defaults: {expect: [{column: a, not_null: true}]}
tables:
  "x_${table}": {from: pg:public.*}
  x_a: {from: {connection: pg, table: public.a}, expect: [{column: b, not_null: true}]}
""")
    assert tables["x_a"] == {
        "from": {"connection": "pg", "table": "public.a"},
        "expect": [{"column": "b", "not_null": True}],
    }


def test_an_exact_entry_inherits_from_the_pattern_that_makes_it() -> None:
    tables = merged("""
defaults: {to: lake}
tables:
  "raw_${table}": {from: pg:public.*, exclude: [tmp_*], mode: truncate, guard: {allow_empty: false}}
  raw_orders: {mode: merge, key: [id]}
  raw_lines: {from: pg:public.lines, guard: {max_shrink: 5%}}
  raw_other: {from: pg:shop.other}
  raw_tmp_x: {mode: append}
  orders: {mode: append}
""")
    assert tables["raw_orders"] == {
        "to": "lake",
        "from": "pg:public.orders",
        "mode": "merge",
        "guard": {"allow_empty": False},
        "key": ["id"],
    }
    assert tables["raw_lines"]["guard"] == {"allow_empty": False, "max_shrink": "5%"}
    assert tables["raw_other"] == {"to": "lake", "from": "pg:shop.other"}
    assert tables["raw_tmp_x"] == {"to": "lake", "mode": "append"}
    assert tables["orders"] == {"to": "lake", "mode": "append"}


def test_an_open_schema_makes_nothing_known_offline() -> None:
    tables = merged("""
tables:
  "${table}": {from: pg:*.*, mode: truncate}
  "${schema}_${table}": {from: pg:s*.*, mode: append}
  shop_orders: {to: lake}
""")
    assert tables["shop_orders"] == {"to": "lake", "from": "pg:shop.orders", "mode": "append"}


def test_every_value_remembers_its_layer() -> None:
    table = nodes("""
defaults: {to: lake, guard: {allow_empty: false}}
tables:
  "${table}": {from: pg:public.*, mode: truncate}
  orders: {guard: {max_shrink: 5%}}
""")["orders"]
    assert {path: (leaf.origin, leaf.mark.line) for path, leaf in leaves(table)} == {
        "to": ("defaults", 2),
        "guard.allow_empty": ("defaults", 2),
        "guard.max_shrink": ("", 5),
        "from": ("${table}", 4),
        "mode": ("${table}", 4),
    }
