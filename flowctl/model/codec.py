"""Frozen values as JSON, and back.

A dataclass is an object with its fields in their order, a tuple an array, a mapping an object, None is null. What reads
and writes a class is made of its type hints once, when the class is first met. :func:`in_json` says where a field is
something else in JSON, :func:`has_form` gives a class or a union a form of its own. A key that the class does not know
is passed over: a later flowctl may have added it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

#: Whether a document has a field. ``always``; ``since``: always, but older documents lack it; ``not_default``: only
#: where it differs from the default; ``never``; ``inline``: its own keys stand among those of its owner.
Presence = Literal["always", "since", "not_default", "never", "inline"]
Convert = Callable[[Any], Any]
T = TypeVar("T")

_writers: dict[type, Convert] = {}
_readers: dict[frozenset[Any], Convert] = {}


def in_json(presence: Presence = "always", *, name: str = "") -> Mapping[str, Any]:
    """The metadata of a field: whether documents have it, and as what, where that is not its own name."""
    return {"presence": presence, "name": name}


def has_form(kind: Any, write: Convert | None, read: Convert) -> None:
    """Registers the form of a class, or of all classes of a union. ``write`` None: each is written by its fields."""
    for one in get_args(kind) or (kind,):
        if write is not None:
            _writers[one] = write
    _readers[_classes(kind)] = read


def to_json(value: object) -> Any:
    """JSON-safe, as long as mappings without a type (:class:`Any`) are."""
    write = _writers.get(type(value)) or _writer(type(value))
    return write(value)


def from_json(kind: type[T], document: Any) -> T:
    """Reads what :func:`to_json` wrote. ``KeyError``, ``TypeError`` or ``ValueError`` for anything else."""
    hint: Any = kind
    read: Callable[[Any], T] = _reader(hint) or _as_it_is
    return read(document)


def _writer(kind: type) -> Convert:
    if is_dataclass(kind):
        write = _object_writer(kind)
    elif issubclass(kind, tuple | list):
        write = _list
    elif issubclass(kind, Mapping):
        write = _dict
    else:
        write = _as_it_is
    return _writers.setdefault(kind, write)


def _list(values: Iterable[object]) -> list[Any]:
    return [to_json(value) for value in values]


def _dict(values: Mapping[str, object]) -> dict[str, Any]:
    return {key: to_json(value) for key, value in values.items()}


def _object_writer(kind: Any) -> Convert:
    hints = get_type_hints(kind)
    parts = [
        (field.name, _name(field), _reader(hints[field.name]), field.default if presence == "not_default" else MISSING)
        for field in fields(kind)
        if (presence := _presence(field)) not in ("never", "inline")
    ]
    inline = [field.name for field in fields(kind) if _presence(field) == "inline"]

    def write(value: object) -> dict[str, Any]:
        found = vars(value)
        document = {
            key: to_json(found[name]) if is_converted else found[name]
            for name, key, is_converted, default in parts
            if default is MISSING or found[name] != default
        }
        for name in inline:
            document |= to_json(found[name])
        return document

    return write


@cache
def _reader(kind: Any) -> Convert | None:
    """None for what needs no conversion."""
    if read := _readers.get(_classes(kind)):
        return _optional(read) if NoneType in get_args(kind) else read
    if is_dataclass(kind):
        return _object_reader(kind)
    inner = [_reader(one) for one in get_args(kind) if one is not Ellipsis]
    match get_origin(kind), inner:
        case origin, [read] if origin is tuple:
            return _array(read) if read else tuple
        case origin, [None, read] if read and issubclass(origin, Mapping):
            return _mapping(read)
        case _, [read, None] if read and NoneType in get_args(kind):
            return _optional(read)
        case _ if any(inner):
            raise TypeError(f"no form in JSON for {kind}")
    return None


def _optional(read: Convert) -> Convert:
    return lambda document: None if document is None else read(document)


def _array(read: Convert) -> Convert:
    return lambda document: tuple(map(read, document))


def _mapping(read: Convert) -> Convert:
    return lambda document: {key: read(value) for key, value in document.items()}


def _classes(kind: Any) -> frozenset[Any]:
    """Those of a union, without None."""
    return frozenset(get_args(kind) or (kind,)) - {NoneType}


def _object_reader(kind: Any) -> Convert:
    hints = get_type_hints(kind)
    parts = [
        (field.name, _name(field), _reader(hints[field.name]), presence == "always")
        for field in fields(kind)
        if (presence := _presence(field)) not in ("never", "inline")
    ]
    inline = [(field.name, hints[field.name]) for field in fields(kind) if _presence(field) == "inline"]

    def read(document: Mapping[str, Any]) -> Any:
        values = {}
        for name, key, convert, is_required in parts:
            if is_required or key in document:
                values[name] = convert(document[key]) if convert else document[key]
        return kind(**values, **{name: from_json(hint, document) for name, hint in inline})

    return read


def _presence(field: Field[Any]) -> Presence:
    presence: Presence = field.metadata.get("presence", "always")
    return presence


def _name(field: Field[Any]) -> str:
    return field.metadata.get("name") or field.name


def _as_it_is(value: Any) -> Any:
    return value
