"""Every message of the package, as it is written in the code: what to do begins with a capital letter and a verb."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

import flowctl

ROOT = Path(flowctl.__file__).parent
#: Where a hint is given by its place: the name of what is called, and the number of the argument.
BY_PLACE = {"Diagnostic": 1, "Stop": 1, "Missing": 1, "error": 2}
#: What a hint may begin with: what to do, or the name that was perhaps meant ("Did you mean").
FIRST_WORDS = {
    "Add", "Adopt", "ALTER", "Append", "Ask", "Break", "Cast", "Change", "Check", "Choose", "Close", "Compare",
    "Copy", "Correct", "Create", "Declare", "Delete", "Did", "Drop", "End", "Exclude", "Fill", "Find", "Finish",
    "Fix", "Forget", "Get", "Give", "GRANT", "Grant", "Include", "Indent", "Install", "Join", "Keep", "Leave",
    "Let", "List", "Look", "Make", "Mark", "Move", "Name", "Or", "Order", "Plan", "Put", "Raise", "Read",
    "Reduce", "Reinstall", "Remove", "Rename", "Renew", "Repair", "Replace", "Report", "Register", "Restore", "Rewrite",
    "Run", "See", "Select", "Send", "Set", "Shorten", "Solve", "Split", "Start", "Take", "Try", "Use", "Wait",
    "Write",
}  # fmt: skip
#: Words of style.md's first column, in what people see.
UNWANTED = re.compile(r"(?i)\b(zombies?|mend(s|ed|ing)?|put aside|the ways? on|the way out)\b")


@functools.cache
def written() -> list[tuple[str, list[ast.AST]]]:
    """Each module's name and nodes."""
    return [
        (str(path.relative_to(ROOT)), list(ast.walk(ast.parse(path.read_text(encoding="utf-8")))))
        for path in sorted(ROOT.rglob("*.py"))
    ]


def hints() -> Iterator[tuple[str, str]]:
    """Place and first piece of text of each hint; those that begin with a value are left out."""
    for name, nodes in written():
        for node in nodes:
            for value in _hints_of(node):
                for text in _beginnings(value):
                    yield f"{name}:{value.lineno}", text


def _hints_of(node: ast.AST) -> Iterator[ast.expr]:
    match node:
        case ast.Call(func=ast.Name(called) | ast.Attribute(attr=called), args=given, keywords=named):
            yield from (one.value for one in named if one.arg == "hint")
            if BY_PLACE.get(called, 99) < len(given) and not any(isinstance(one, ast.Starred) for one in given):
                yield given[BY_PLACE[called]]
        case ast.Assign(targets=[ast.Name(name)], value=value) if re.search("(?i)hint$", name) and name != "HINT":
            yield value
        case _:
            return


def _beginnings(value: ast.expr) -> Iterator[str]:
    match value:
        case ast.Constant(str() as text) if text:
            yield text
        case ast.JoinedStr(values=[ast.Constant(str() as text), *_]):
            yield text
        case ast.IfExp(body=body, orelse=other):
            yield from (*_beginnings(body), *_beginnings(other))
        case ast.BoolOp(values=values):
            for one in values:
                yield from _beginnings(one)
        case ast.BinOp(left=left):
            yield from _beginnings(left)
        case _:
            return


def test_there_are_hints_to_look_at() -> None:
    assert len(list(hints())) > 200


@pytest.mark.parametrize("rule", ["capital", "verb"])
def test_a_hint_begins_with_a_capital_letter_and_says_what_to_do(rule: str) -> None:
    def is_right(text: str) -> bool:
        first = re.split(r"[\s:,…]", text, maxsplit=1)[0]
        return first[:1].isupper() if rule == "capital" else first in FIRST_WORDS

    assert [(place, text) for place, text in hints() if not is_right(text)] == []


def test_texts_use_the_words_of_the_field() -> None:
    """In messages and notes; comments and docstrings are not looked at."""
    found = []
    for name, nodes in written():
        docs = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            is_text = isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs
            if is_text and UNWANTED.search(node.value):
                found.append((f"{name}:{node.lineno}", node.value))
    assert found == []


def test_nothing_is_denied_without_asking_the_target() -> None:
    """Who says that nothing was committed has asked, or stands before the first write; each such text is listed."""
    known = {
        "run/tries.py": 1,  # before the first write of the attempt
        "cli/apply.py": 1,  # the plan was not approved
        "plan/render.py": 2,  # a plan changes nothing
    }
    denial = re.compile(
        r"(?i)nothing (was|is|has been) (committed|written|changed|recorded)|was not (committed|written)"
    )
    found: dict[str, int] = {}
    for name, nodes in written():
        docs = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
        for node in nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
                found[name] = found.get(name, 0) + len(denial.findall(node.value))
    assert {name: count for name, count in found.items() if count} == known
