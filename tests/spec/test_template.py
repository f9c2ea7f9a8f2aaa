"""``{{ }}`` in values: alone, sandboxed, typed when it is the whole value."""

from __future__ import annotations

from typing import Any

import pytest

from flowctl.diagnostics import Mark
from flowctl.spec.findings import Findings
from flowctl.spec.node import Node, plain
from flowctl.spec.template import fill_placeholders, placeholders, render

VARIABLES = {"env": "prod", "splits": 16, "on": True, "items": "a variable, not a method"}
HERE = Mark("flow.yaml", 1)


def rendered(text: str, key: str = "x") -> tuple[Any, list[str]]:
    findings = Findings()
    root = Node({key: Node(text, HERE)}, HERE)
    return plain(render(root, VARIABLES, findings))[key], [found.message for found in findings.diagnostics]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("lake/{{ vars.env }}/x", "lake/prod/x"),
        ("{{ vars.env }}{{vars.env}}", "prodprod"),
        ("{{ vars.splits }}", 16),
        ("{{ vars.splits * 2 }}", 32),
        ("{{ vars.on }}", True),
        ("{{ vars.splits }} splits", "16 splits"),
        ("{{ vars.env | upper }}", "PROD"),
        ("{{ 'a' if vars.on else 'b' }}", "a"),
        ("{{ vars.items }}", "a variable, not a method"),
        ("{{ '{{' }} x", "{{ x"),
        ("{{ '{%' }} x", "{% x"),
        ("$${table} and ${table}", "$${table} and ${table}"),
        ("no expression } }", "no expression } }"),
    ],
)
def test_values(text: str, value: Any) -> None:
    assert rendered(text) == (value, [])


def test_ref_leaves_a_marker_in_sql() -> None:
    sql = "SELECT * FROM {{ ref('a') }} JOIN {{ ref(\"b\") }} WHERE x = '{{ vars.env }}'"
    assert rendered(sql, key="sql") == ("SELECT * FROM {{ref:a}} JOIN {{ref:b}} WHERE x = 'prod'", [])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{{ vars.evn }}", "`vars.evn` is not defined"),
        ("a {{ vars.evn | upper }}", "`vars.evn` is not defined"),
        ("{{ env }}", "`env` is not defined"),
        (
            "{{ vars.env",
            "the expression cannot be read: unexpected end of template, expected 'end of print statement'.",
        ),
        ("{% if vars.on %}x{% endif %}", "{% %} and {# #} are not supported"),
        ("{# note #}", "{% %} and {# #} are not supported"),
        ("{{ ref('a') }}", "`ref('a')` works in `from: {sql: …}` only"),
        ("{{ range(3) }}", "`range` is not defined"),
        ("{{ 1 / 0 }}", "the expression fails: division by zero"),
        ("{{ [1, 2] }}", "the expression fails: it gives a list, not a text, number or boolean"),
    ],
)
def test_errors(text: str, message: str) -> None:
    assert rendered(text) == (text, [message])


@pytest.mark.parametrize("text", ["{{ ''.__class__ }}", "{{ vars.__class__.__mro__ }}", "{{ vars.update({}) }} "])
def test_the_sandbox_holds(text: str) -> None:
    value, messages = rendered(text)
    assert value == text
    assert messages


def test_keys_vars_and_include_are_left_alone() -> None:
    findings = Findings()
    root = Node(
        {"vars": Node({"a": Node("{{ x }}", HERE)}, HERE), "include": Node([Node("{{ x }}", HERE)], HERE)}, HERE
    )
    assert render(root, {}, findings) == root
    assert findings.diagnostics == []


def test_placeholders() -> None:
    text = "${table} $${table} ${secret:env:X} ${other}"
    assert fill_placeholders(text, {"table": "orders"}) == "orders ${table} ${secret:env:X} ${other}"
    assert placeholders(text) == ["table", "secret:env:X", "other"]
