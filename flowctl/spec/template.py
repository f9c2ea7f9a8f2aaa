"""Fills in ``{{ … }}`` inside string values, each separately, in a Jinja2 sandbox that knows ``vars`` and ``ref``.

A value that is exactly one expression keeps the expression's type. Statements (``{% %}``) and comments are refused:
a template that determines the shape of the spec would make places meaningless.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from flowctl.spec import limits
from flowctl.spec.findings import Findings
from flowctl.spec.node import Node, YamlScalar
from flowctl.spec.suggest import did_you_mean
from flowctl.sql.refs import ref_marker

if TYPE_CHECKING:
    from jinja2.sandbox import SandboxedEnvironment

_STATEMENT = re.compile(r"\{[%#]")
#: The form of nearly all expressions; filled without Jinja2, whose import and compilation would slow down a small spec.
_SIMPLE = re.compile(r"\{\{ *(?:vars\.([A-Za-z_]\w*)|ref\('([^'{}]*)'\)) *\}\}")
#: Maximum length of a value with any other expression: parsing takes quadratic time.
_LONGEST_TEMPLATE = 20_000
_LONE = re.compile(r"\s*\{\{-?(.*?)-?\}\}\s*", re.DOTALL)


def render(root: Node, variables: Mapping[str, YamlScalar], findings: Findings) -> Node:
    """``root`` with every ``{{ }}`` filled in. ``vars`` itself is left alone. A value that cannot be filled keeps its
    text, with an error at its place."""
    rendering = _Rendering(variables, findings)
    return rendering.map(root, skip=("vars", "include"))


@dataclass
class _Rendering:
    variables: Mapping[str, YamlScalar]
    findings: Findings
    _filled: dict[tuple[str, bool], YamlScalar] = field(default_factory=dict)
    _size: int = 0
    _environment: SandboxedEnvironment | None = None

    def map(self, node: Node, *, skip: tuple[str, ...] = ()) -> Node:
        changed = {
            key: child if key in skip else self.node(child, in_sql=key == "sql") for key, child in node.entries.items()
        }
        return replace(node, value=changed)

    def node(self, node: Node, *, in_sql: bool = False) -> Node:
        match node.value:
            case str() as text if "{{" in text or _STATEMENT.search(text):
                return replace(node, value=self._fill(text, node, in_sql=in_sql))
            case dict():
                return self.map(node)
            case list() as items:
                return replace(node, value=[self.node(item) for item in items])
            case _:
                return node

    def _fill(self, text: str, node: Node, *, in_sql: bool) -> YamlScalar:
        if _STATEMENT.search(_outside(text)):
            hint = "Write other text as {{ '{%' }}: only {{ expressions }} work, inside one value"
            self.findings.error(node, "{% %} and {# #} are not supported", hint, "template-statement")
            return text
        if (text, in_sql) not in self._filled:
            try:
                self._filled[text, in_sql] = self._check(self._evaluate(text, in_sql=in_sql))
            except Exception as error:  # noqa: BLE001 - an expression may raise anything; all of it is an error in the spec
                message, hint = self._explain(error)
                self.findings.error(node, message, hint, "template")
                return text
        return self._filled[text, in_sql]

    def _evaluate(self, text: str, *, in_sql: bool) -> YamlScalar:
        if not "".join(_SIMPLE.split(text)[::3]).count("{{") and self._knows_all(text, in_sql=in_sql):
            return self._substitute(text)
        if len(text) > _LONGEST_TEMPLATE:
            raise ValueError(f"the value has more than {_LONGEST_TEMPLATE:,} characters")
        if self._environment is None:
            from flowctl.spec.sandbox import Sandbox  # importing Jinja2 costs a small spec a tenth of its time

            self._environment = Sandbox()
        names = {"vars": self.variables, "ref": ref_marker if in_sql else _no_reference}
        if (lone := _LONE.fullmatch(text)) and "{{" not in lone[1] and "}}" not in lone[1]:
            value = self._environment.compile_expression(lone[1], undefined_to_none=False)(**names)
            return _scalar(value)
        return self._environment.from_string(text).render(**names)

    def _knows_all(self, text: str, *, in_sql: bool) -> bool:
        return all(variable in self.variables if variable else in_sql for variable, _ in _SIMPLE.findall(text))

    def _substitute(self, text: str) -> YamlScalar:
        if (lone := _SIMPLE.fullmatch(text.strip())) and lone[1]:
            return self.variables[lone[1]]
        named = [self.variables[name] for name, _ in _SIMPLE.findall(text) if name]
        if sum(len(value) for value in named if isinstance(value, str)) > limits.VALUE_SIZE:
            raise ValueError("its result would be too large")
        return _SIMPLE.sub(lambda one: str(self.variables[one[1]]) if one[1] else ref_marker(one[2]), text)

    def _check(self, value: YamlScalar) -> YamlScalar:
        if isinstance(value, str):
            self._size += len(value)
            if len(value) > limits.VALUE_SIZE or self._size > limits.FLOW_SIZE:
                raise ValueError("its result would be too large")
        return value

    def _explain(self, error: Exception) -> tuple[str, str]:
        from jinja2 import TemplateSyntaxError, UndefinedError

        match error:
            case _RefOutsideSql():
                return str(error), "Make a table with `from: {sql: …}`, and use it there"
            case TemplateSyntaxError():
                return f"the expression cannot be read: {error.message}", "Check the text between {{ and }}"
            case UndefinedError() if name := re.search(r"has no attribute '(\w+)'", str(error)):
                hint = did_you_mean(name[1], self.variables, "Add it to `vars`; there are: ")
                return f"`vars.{name[1]}` is not defined", hint
            case UndefinedError() if name := re.match(r"'(\w+)' is undefined", str(error)):
                known = name[1] in self.variables
                hint = f"Write `vars.{name[1]}`" if known else "Use one of the names `vars` and, in SQL, `ref`"
                return f"`{name[1]}` is not defined", hint
            case _:
                what = limits.shown(str(error)) or type(error).__name__
                return f"the expression fails: {what}", "Check the text between {{ and }}"


def _outside(text: str) -> str:
    """The text outside of every ``{{ }}``."""
    parts, at = [], 0
    while (start := text.find("{{", at)) >= 0 and (end := text.find("}}", start)) >= 0:
        parts.append(text[at:start])
        at = end + 2
    return "".join([*parts, text[at:]])


def _scalar(value: Any) -> YamlScalar:
    """Raises for undefined names (Jinja2's own error) and for values that are not scalars."""
    from jinja2 import StrictUndefined

    match value:
        case StrictUndefined():
            return str(value)
        case None | bool() | int() | float():
            return value
        case str():
            return str(value)
        case _:
            raise ValueError(f"it gives a {type(value).__name__}, not a text, number or boolean")


def _no_reference(table: str) -> str:
    raise _RefOutsideSql(f"`ref('{table}')` works in `from: {{sql: …}}` only")


class _RefOutsideSql(ValueError):
    pass


def fill_placeholders(text: str, values: Mapping[str, str]) -> str:
    """``text`` with ``${name}`` replaced from ``values`` and ``$${`` turned into a literal ``${``. Other names stay as
    they are (including ``${secret:…}``)."""
    return _PLACEHOLDER.sub(lambda found: "${" if found[0] == "$${" else values.get(found[1], found[0]), text)


def literal(text: str) -> str:
    """``text`` as a spec writes it, so that nothing in it is filled in: neither ``{{ }}`` nor ``${…}``."""
    return _OPENING.sub(lambda found: f"{{{{ '{found[0]}' }}}}", text.replace("${", "$${"))


def can_be_key(text: str) -> bool:
    """Whether a spec's map can have ``text`` as a key: keys have no ``{{ }}``, and so no way to write it."""
    return "{{" not in text


def placeholders(text: str) -> list[str]:
    """The names in ``${name}``, in order; ``$${`` is not one."""
    return [name for name in _PLACEHOLDER.findall(text) if name]


_OPENING = re.compile(r"\{[{%#]")
_PLACEHOLDER = re.compile(r"\$\$\{|\$\{([^}]{0,300})\}")
