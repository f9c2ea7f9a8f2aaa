"""Jinja2 for the expressions of a spec: attributes and calls reach nothing but values, and results stay small.

Jinja's own sandbox keeps an expression away from Python; it does not limit memory and time
(``'{:999999999}'.format(1)``, ``10 ** 10 ** 10``). Here operators, filters and methods are a closed set, and those that
can produce large results from small values are checked for their size first.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from jinja2 import StrictUndefined
from jinja2.exceptions import SecurityError
from jinja2.filters import FILTERS
from jinja2.sandbox import ImmutableSandboxedEnvironment

from flowctl.spec.limits import LONG_FORMAT

#: Characters of a result, items of a list.
_LONGEST = 10_000
#: Bits of an integer: a few thousand digits.
_BITS = 4_096
_SOME_FILTERS = (
    "abs", "capitalize", "count", "d", "default", "first", "float", "int", "last", "length", "list", "lower", "max",
    "min", "reverse", "sort", "string", "sum", "title", "trim", "unique", "upper", "urlencode", "wordcount",
)  # fmt: skip
_METHODS = {
    "capitalize", "casefold", "center", "count", "endswith", "find", "index", "isalnum", "isalpha",
    "isdecimal", "isdigit", "islower", "isnumeric", "isspace", "isupper", "join", "ljust", "lower", "lstrip",
    "partition", "removeprefix", "removesuffix", "replace", "rfind", "rjust", "rpartition", "rsplit", "rstrip", "split",
    "splitlines", "startswith", "strip", "swapcase", "title", "upper", "zfill",
}  # fmt: skip
_MAP_METHODS = {"get", "items", "keys", "values"}


class TooLarge(SecurityError):
    """The result would be too large; it was not computed."""


class Sandbox(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset(ImmutableSandboxedEnvironment.default_binop_table)

    def __init__(self) -> None:
        super().__init__(undefined=StrictUndefined, keep_trailing_newline=True)
        self.globals.clear()
        self.filters = {name: FILTERS[name] for name in _SOME_FILTERS} | {
            "center": lambda text, width=80: _checked_method(str(text).center)(width),
            "format": lambda text, *values, **named: _format(str(text), values or named),
            "join": lambda items, by="": _checked_method(str(by).join)([str(item) for item in _small(items)]),
            "replace": lambda text, old, new: _checked_method(str(text).replace)(str(old), str(new)),
            "round": lambda number, digits=0: _round(number, digits),
        }

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        match operator:
            case "*" if isinstance(left, int) and isinstance(right, int):
                _require(left.bit_length() + right.bit_length() <= _BITS)
            case "*":
                for one, times in ((left, right), (right, left)):
                    if isinstance(one, str | list | tuple):
                        _require(isinstance(times, int) and len(one) * times <= _LONGEST)
            case "**":
                if isinstance(left, int) and isinstance(right, int):
                    _require(right <= _BITS and left.bit_length() * right <= _BITS)
            case "%" if isinstance(left, str):
                return _format(left, right)
            case "+" if isinstance(left, str | list | tuple) and isinstance(right, str | list | tuple):
                _require(len(left) + len(right) <= _LONGEST)
            case _:
                pass
        return super().call_binop(context, operator, left, right)

    def wrap_str_format(self, value: Any) -> Any:
        wrapped = super().wrap_str_format(value)
        if wrapped is not None:
            _require_short_format(value.__self__)
        return wrapped

    def call(self, context: Any, called: Any, *args: Any, **kwargs: Any) -> Any:
        match owner := getattr(called, "__self__", None):
            case str() | Mapping():
                known = _METHODS if isinstance(owner, str) else _MAP_METHODS
                if called.__name__ not in known:
                    raise SecurityError(f"the method `{called.__name__}` is not available here")
                if isinstance(owner, str):
                    called = _checked_method(called)
            case None:
                pass
            case _:
                raise SecurityError(f"the method `{getattr(called, '__name__', '')}` is not available here")
        return super().call(context, called, *args, **kwargs)


def _checked_method(method: Callable[..., Any]) -> Callable[..., Any]:
    """A text's method, called only if its result cannot be large."""
    text: str = method.__self__  # type: ignore[attr-defined]

    def called(*args: Any, **kwargs: Any) -> Any:
        match method.__name__, args:
            case "replace", (str() as old, str() as new, *_):
                times = len(text) + 1 if not old else text.count(old)
                _require(len(text) + times * len(new) <= _LONGEST)
            case "join", (items, *_):
                items = _small(items)
                _require(sum(map(len, map(str, items))) + len(text) * len(items) <= _LONGEST)
                args = (items,)
            case (("center" | "ljust" | "rjust" | "zfill"), (width, *_)):
                _require(isinstance(width, int) and width <= _LONGEST)
            case _:
                pass
        return method(*args, **kwargs)

    return called


def _small(items: Any) -> list[Any]:
    found = list(items)
    _require(len(found) <= _LONGEST)
    return found


def _format(text: str, values: Any) -> str:
    _require_short_format(text)
    formatted: str = text % values
    return formatted


def _require_short_format(text: str) -> None:
    _require(len(text) <= _LONGEST and not LONG_FORMAT.search(text))


def _round(number: Any, digits: Any) -> Any:
    _require(isinstance(digits, int) and abs(digits) <= 300)
    return round(number, digits)


def _require(fits: bool) -> None:
    if not fits:
        raise TooLarge("its result would be too large")
