"""Reads one YAML file into nodes: YAML 1.2 core values, every node with its place, and errors with a next step.

libyaml scans and composes; which plain text is a number or a boolean is decided here (PyYAML would read ``no`` as false
and ``2020-01-01`` as a date). Anchors and aliases work, merge keys and tags do not: ``defaults`` and patterns serve
that purpose and keep the place of an error correct.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml
from yaml.cyaml import CParser  # type: ignore[attr-defined]

from flowctl.diagnostics import Diagnostic, Mark
from flowctl.spec import limits
from flowctl.spec.node import Node, YamlScalar
from flowctl.spec.template import can_be_key

_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
_WORDS: dict[str, YamlScalar] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
_UNTAGGED = "untagged"


def read_document(path: Path, shown: str) -> tuple[Node | None, list[Diagnostic]]:
    """The file's root and its errors; no root if the file cannot be read at all. ``shown`` is its name in marks."""
    try:
        with path.open(encoding="utf-8") as file:
            text = file.read(limits.FILE_SIZE + 1)
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        missing = Diagnostic(f"cannot read {shown}: {reason}", "Check the path", Mark(shown, 1), "unreadable-file")
        return None, [missing]
    return parse_document(text, shown)


def parse_document(text: str, shown: str) -> tuple[Node | None, list[Diagnostic]]:
    """As :func:`read_document`, for text already in memory."""
    if refusal := _too_large(text, shown):
        return None, [refusal]
    try:
        root = _Composer(text, shown).get_single_node()
    except _Refused as refused:
        return None, [refused.finding]
    except yaml.MarkedYAMLError as error:
        return None, [_syntax_error(error, text, shown)]
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        code = error.character if isinstance(error.character, int) else ord(error.character)
        what = f"the character U+{code:04X} is not allowed in YAML"
        return None, [Diagnostic(what, "Remove it", Mark(shown, line), "yaml-syntax")]
    if root is None:
        return None, [Diagnostic("the file is empty", "Start with `version: 1`", Mark(shown, 1), "empty-file")]
    reading = _Reading(shown)
    try:
        return reading.node(root), reading.diagnostics
    except _Refused as refused:
        return None, [*reading.diagnostics, refused.finding]


def plain_value(text: str) -> YamlScalar:
    """YAML 1.2, core schema (section 10.3.2)."""
    if text in _WORDS:
        return _WORDS[text]
    if len(text) > limits.NUMBER_SIZE or text[0] not in "-+.0123456789":
        return text
    if _INT.fullmatch(text):
        return int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    if _FLOAT.fullmatch(text):
        return float(text.lower().replace(".inf", "inf").replace(".nan", "nan"))
    return text


def _is_plain(scalar: yaml.ScalarNode) -> bool:
    """Whether the scalar has no quotes; libyaml reports that as None or an empty text."""
    return not scalar.style


class _Refused(Exception):
    """Stops composing and reading; the rest of the file is ignored."""

    def __init__(self, finding: Diagnostic) -> None:
        super().__init__(finding.message)
        self.finding = finding


class _Composer(CParser):
    """libyaml's parser and composer with a resolver that assigns no types; :class:`_Reading` does. It counts nesting
    levels instead, because composing recurses on the C stack."""

    def __init__(self, text: str, shown: str) -> None:
        super().__init__(text)
        self._shown = shown
        self._depth = 0

    def resolve(self, kind: type, value: Any, implicit: Any) -> str:
        return _UNTAGGED

    def descend_resolver(self, current_node: Any, current_index: Any) -> None:
        if self._depth > limits.DEPTH:
            raise _Refused(_nested(_mark_of(current_node, self._shown)))
        self._depth += 1

    def ascend_resolver(self) -> None:
        self._depth -= 1


class _Reading:
    """One walk over the composed tree, collecting errors."""

    def __init__(self, shown: str) -> None:
        self.shown = shown
        self.diagnostics: list[Diagnostic] = []
        self._open: set[int] = set()
        self._count = 0

    def node(self, composed: yaml.Node, key_mark: Mark | None = None) -> Node:
        mark = _mark_of(composed, self.shown)
        if composed.tag != _UNTAGGED:
            self._error(f"the tag {composed.tag} has no meaning here", "Remove it", mark, "yaml-tag")
        if id(composed) in self._open:
            self._error("an alias contains itself", "Write the value out", mark, "yaml-alias")
            return Node(None, mark, key_mark)
        self._count += 1
        if self._count > limits.VALUES:
            raise _Refused(_values(mark))
        if len(self._open) > limits.DEPTH:
            raise _Refused(_nested(mark))
        match composed:
            case yaml.ScalarNode():
                value = str(composed.value)
                if len(value) > limits.VALUE_SIZE:
                    self._error(
                        f"a value has more than {limits.VALUE_SIZE:,} characters", "Shorten it", mark, "too-large"
                    )
                    return Node(None, mark, key_mark)
                return Node(plain_value(value) if _is_plain(composed) else value, mark, key_mark)
            case yaml.SequenceNode():
                if len(composed.value) > limits.LIST_ITEMS and not all(map(_is_text, composed.value)):
                    what = f"a list has more than {limits.LIST_ITEMS:,} entries that are not all texts"
                    self._error(what, "Shorten it", mark, "too-large")
                    return Node([], mark, key_mark)
                self._open.add(id(composed))
                items = [self.node(item) for item in composed.value]
                self._open.discard(id(composed))
                return Node(items, mark, key_mark)
            case yaml.MappingNode():
                if composed.flow_style and any(isinstance(key, yaml.MappingNode) for key, _ in composed.value):
                    self._error("an unquoted value contains {{ … }}", _QUOTE_BRACES, mark, "yaml-unquoted")
                    return Node("", mark, key_mark)
                self._open.add(id(composed))
                entries = self._entries(composed)
                self._open.discard(id(composed))
                return Node(entries, mark, key_mark)
            case _:
                raise TypeError(f"libyaml composed a {type(composed).__name__}")

    def _entries(self, composed: yaml.MappingNode) -> dict[str, Node]:
        entries: dict[str, Node] = {}
        for key, value in composed.value:
            mark = _mark_of(key, self.shown)
            name = str(key.value)
            if not isinstance(key, yaml.ScalarNode):
                what = f"a key is a {'list' if isinstance(key, yaml.SequenceNode) else 'map'}"
                self._error(what, "Write a text as the key", mark, "yaml-key")
            elif len(name) > _LONGEST_KEY:
                self._error(f"a key has more than {_LONGEST_KEY} characters", "Shorten it", mark, "too-large")
            elif name == "<<" and _is_plain(key):
                self._error(
                    "merge keys (`<<`) are not part of YAML 1.2",
                    "Put what tables share into `defaults`",
                    mark,
                    "yaml-merge-key",
                )
            elif name in entries:
                first = entries[name].place
                self._error(
                    f"`{name}` is written twice",
                    f"Remove one of them; it is also in line {first.line}",
                    mark,
                    "duplicate-key",
                )
            elif not can_be_key(name):
                self._error("`{{ }}` works in values only, not in keys", "Write the key out", mark, "template-in-key")
            else:
                entries[name] = self.node(value, mark)
        return entries

    def _error(self, message: str, hint: str, mark: Mark, code: str) -> None:
        self.diagnostics.append(Diagnostic(message, hint, mark, code))


def _mark_of(composed: yaml.Node, shown: str) -> Mark:
    start = composed.start_mark
    return Mark(shown, start.line + 1, start.column + 1)


def _is_text(item: yaml.Node) -> bool:
    return isinstance(item, yaml.ScalarNode) and (not _is_plain(item) or isinstance(plain_value(str(item.value)), str))


def _too_large(text: str, shown: str) -> Diagnostic | None:
    if len(text) > limits.FILE_SIZE:
        what = f"the file has more than {limits.FILE_SIZE:,} characters"
        return Diagnostic(what, "Use patterns and `defaults` for what repeats", Mark(shown, 1), "too-large")
    return _values(Mark(shown, 1)) if limits.too_many_values(text) else None


def _nested(mark: Mark) -> Diagnostic:
    what = f"maps and lists are nested more than {limits.DEPTH} levels deep"
    return Diagnostic(what, "Reduce the nesting: a spec needs no more than ten levels", mark, "too-deep")


def _values(mark: Mark) -> Diagnostic:
    what = f"the file has more than {limits.VALUES:,} values, those that aliases repeat included"
    return Diagnostic(what, "Use patterns and `defaults` for what repeats", mark, "too-large")


_LONGEST_KEY = 300
_QUOTE_BRACES = 'Put the value in quotes, as in "{{ vars.name }}": YAML reads { as the start of a map'


def _syntax_error(error: yaml.MarkedYAMLError, text: str, shown: str) -> Diagnostic:
    """libyaml's error, reworded to say what to change."""
    at = error.problem_mark or error.context_mark
    line, column = (at.line, at.column) if at else (0, 0)
    here = (text.splitlines() or [""])[line : line + 1]
    rest = here[0][column:] if here else ""
    problem = error.problem or "this is not YAML"
    opened = error.context_mark.line + 1 if error.context_mark else line + 1
    mark = Mark(shown, line + 1, column + 1)
    match problem:
        case _ if rest.startswith("\t"):
            return Diagnostic("a tab cannot indent YAML", "Indent with spaces", mark, "yaml-tab")
        case _ if error.context == "while scanning an alias" or problem == "found undefined alias":
            hint = 'Put it in quotes, as in "*.csv": YAML reads a leading * as an alias'
            star = mark if rest.startswith("*") else Mark(shown, line + 1, max(column, 1))
            return Diagnostic("an unquoted value starts with *", hint, star, "yaml-unquoted")
        case _ if rest.startswith("{") and "did not find expected" in problem:
            return Diagnostic("an unquoted value contains ${…} or {{ … }}", _QUOTE_BRACES, mark, "yaml-unquoted")
        case "found character that cannot start any token":
            hint = "Put the value in quotes"
            return Diagnostic(f"an unquoted value cannot start with {rest[:1]}", hint, mark, "yaml-unquoted")
        case "mapping values are not allowed in this context":
            hint = "Put a value that holds `: ` in quotes, or align the key with its neighbours"
            return Diagnostic("a key is not allowed here", hint, mark, "yaml-syntax")
        case "found unexpected end of stream":
            return Diagnostic(f"the quote opened in line {opened} is not closed", "Close it", mark, "yaml-syntax")
        case "but found another document":
            return Diagnostic("a spec is one YAML document", "Remove the line `---`", mark, "yaml-syntax")
        case _ if "did not find expected ',' or" in problem:
            hint = f"Close it, or put a comma before line {line + 1}"
            return Diagnostic(f"the bracket opened in line {opened} is not closed", hint, mark, "yaml-syntax")
        case _:
            hint = "Check indentation, quotes and brackets in this line and the one above"
            return Diagnostic(problem, hint, mark, "yaml-syntax")
