"""YAML 1.2, core schema: what plain text is, and where everything stands."""

from __future__ import annotations

import math
from typing import Any

import pytest

from flowctl.spec.document import parse_document
from flowctl.spec.node import Node, plain


def read(text: str) -> Node:
    root, diagnostics = parse_document(text, "flow.yaml")
    assert root is not None
    assert diagnostics == []
    return root


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("no", "no"),
        ("yes", "yes"),
        ("on", "on"),
        ("true", True),
        ("FALSE", False),
        ("~", None),
        ("", None),
        ("12", 12),
        ("-7", -7),
        ("012", 12),
        ("0o17", 15),
        ("0xff", 255),
        ("1_000", "1_000"),
        ("12:30:45", "12:30:45"),
        ("2020-01-01", "2020-01-01"),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("-.inf", -math.inf),
        (".", "."),
        ("-", None),
        ("1.2.3", "1.2.3"),
        ("5%", "5%"),
        ("15m", "15m"),
        ('"12"', "12"),
        ("'true'", "true"),
        ('""', ""),
        ("pg:public.*", "pg:public.*"),
        ("${secret:env:X}", "${secret:env:X}"),
    ],
)
def test_plain_values(written: str, value: Any) -> None:
    if written == "-":
        assert plain(read("a:\n  -")) == {"a": [None]}
    else:
        found = plain(read(f"a: {written}"))["a"]
        assert (found, type(found)) == (value, type(value))


def test_not_a_number() -> None:
    assert math.isnan(plain(read("a: .nan"))["a"])


def test_every_node_keeps_its_place() -> None:
    root = read("a: 1\nb:\n  c: [x, {d: y}]\n")
    c = root.entries["b"].entries["c"]
    assert str(c.key_mark) == "flow.yaml:3:3"
    assert str(c.mark) == "flow.yaml:3:6"
    assert str(c.items[0].mark) == "flow.yaml:3:7"
    assert str(c.items[1].entries["d"].mark) == "flow.yaml:3:14"


def test_anchors_and_aliases_share_a_value() -> None:
    assert plain(read("a: &base {x: 1}\nb: *base")) == {"a": {"x": 1}, "b": {"x": 1}}


@pytest.mark.parametrize(
    ("text", "message", "place"),
    [
        ("a: 1\n\tb: 2\n", "a tab cannot indent YAML", "2:1"),
        ("a: *.csv\n", "an unquoted value starts with *", "1:4"),
        ("a: {b: {{ vars.c }}}\n", "an unquoted value contains {{ … }}", "1:8"),
        ("a: 1\n? [b]\n: 2\n", "a key is a list", "2:3"),
        ("a: 1\n? {b: c}\n: 2\n", "a key is a map", "2:3"),
        ("a: [${table}]\n", "an unquoted value contains ${…} or {{ … }}", "1:6"),
        ("a: @x\n", "an unquoted value cannot start with @", "1:4"),
        ("a: b: c\n", "a key is not allowed here", "1:5"),
        ("a: 'x\nb: 1\n", "the quote opened in line 1 is not closed", "3:1"),
        ("a: [1, 2\nb: 3\n", "the bracket opened in line 1 is not closed", "2:2"),
        ("a: 1\n---\nb: 2\n", "a spec is one YAML document", "2:1"),
        ("a: &x [*x]\n", "an alias contains itself", "1:4"),
        ("a: x\x07\n", "the character U+0007 is not allowed in YAML", "1:1"),
        ('"{{ a }}": 1\n', "`{{ }}` works in values only, not in keys", "1:1"),
        ("", "the file is empty", "1:1"),
    ],
)
def test_slips_are_explained(text: str, message: str, place: str) -> None:
    _, (found,) = parse_document(text, "flow.yaml")
    assert (found.message, str(found.mark)) == (message, f"flow.yaml:{place}")
    assert found.hint
