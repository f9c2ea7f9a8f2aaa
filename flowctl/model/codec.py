"""Frozen values as JSON, and back.

A dataclass becomes an object with its fields in order, a tuple an array, a mapping an object, and None null. The reader
and writer of a class are built from its type hints on first use and cached. :func:`in_json` overrides how a field
appears in JSON; :func:`has_form` registers a custom form for a class or a union. Keys that the class does not know are
ignored: a later flowctl may have added them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from functools import cache
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

#: Whether a document contains a field. ``always``; ``since``: always written, but older documents lack it;
#: ``not_default``: only if it differs from the default; ``never``; ``inline``: its keys are merged into the owner's.
Presence = Literal["always", "since", "not_default", "never", "inline"]
Convert = Callable[[Any], Any]
T = TypeVar("T")

_writers: dict[type, Convert] = {}
_readers: dict[frozenset[Any], Convert] = {}


def in_json(presence: Presence = "always", *, name: str = "") -> Mapping[str, Any]:
    """Field metadata: whether documents contain the field, and its key if that differs from the field's name."""
    return {"presence": presence, "name": name}


def has_form(kind: Any, write: Convert | None, read: Convert) -> None:
    """Registers the JSON form of a class, or of all classes of a union. With ``write`` None, each is written field by
    field."""
    for one in get_args(kind) or (kind,):
        if write is not None:
            _writers[one] = write
    _readers[_classes(kind)] = read


def to_json(value: object) -> Any:
    """Returns a JSON-safe value, provided that untyped mappings (:class:`Any`) hold JSON-safe values."""
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
    """Returns None for types that need no conversion."""
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
    """The classes of a union, without None."""
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
