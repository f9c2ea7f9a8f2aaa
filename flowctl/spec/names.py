"""``connection:object`` and the part after the colon: a dotted database name, or one path."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Literal

from flowctl.spec.spec import ObjectSource, Source, TopicSource
from flowctl.spec.template import placeholders

ObjectSyntax = Literal["dotted", "path", "topic"]
#: Placeholders that a table id, ``from``, ``to`` and texts may contain; filled when the source is listed.
PLACEHOLDERS = ("table", "schema", "connection", "id")

_PART = re.compile(r'"((?:[^"]|"")+)"|((?:\$\{[^}]*\}|[^."\s$]|\$(?!\{))+)')


def split_reference(text: str) -> tuple[str, str]:
    """``pg:public.orders`` → ``("pg", "public.orders")``; the object is empty for a bare connection."""
    connection, _, name = text.partition(":")
    return connection.strip(), name.strip()


def object_parts(text: str, syntax: ObjectSyntax) -> tuple[tuple[str, ...], bool]:
    """The parts of an object's name, and whether a plain part is a glob; ``ValueError`` describes what is wrong."""
    match syntax:
        case "path":
            return (_path(text),), is_glob(text)
        case "topic":
            return (_topic(text),), is_glob(text)
        case "dotted":
            return _split_dotted(text)


def is_glob(text: str) -> bool:
    return "*" in text or "?" in text


def pattern_ids(id: str) -> Callable[[str], Mapping[str, str] | None]:
    """A matcher for the ids that a pattern's id can produce: the placeholders' values, or None."""
    written = re.split(r"\$\{([^}]*)\}", id)
    seen: set[str] = set()
    regex = ""
    for index, piece in enumerate(written):
        if index % 2 == 0:
            regex += re.escape(piece)
        else:
            regex += f"(?P={piece})" if piece in seen else f"(?P<{piece}>.+)"
            seen.add(piece)
    compiled = re.compile(regex)

    def match(other: str) -> Mapping[str, str] | None:
        found = compiled.fullmatch(other)
        return found.groupdict() if found else None

    return match


def is_pattern(id: str) -> bool:
    """Whether a table's id creates one table per match of its source."""
    return bool(placeholders(id))


def placeholder_values(id: str, source: Source) -> dict[str, str]:
    """The values of one table's placeholders, as far as its entry determines them; a pattern's own are left open."""
    return {"id": id, **(names_of(source) if isinstance(source, ObjectSource) and not is_pattern(id) else {})}


def names_of(source: ObjectSource) -> dict[str, str]:
    """The placeholders that a source object fills. For files, ``${table}`` is the name without extensions and
    ``${schema}`` the folder; for topics, ``${table}`` is the whole name, with its dots."""
    *above, last = source.parts
    if isinstance(source, TopicSource):
        return {"connection": source.connection, "table": last, "schema": ""}
    folder, _, file = last.rpartition("/")
    return {
        "connection": source.connection,
        "table": last if above else file.partition(".")[0],
        "schema": above[-1] if above else folder.rpartition("/")[2],
    }


def _topic(text: str) -> str:
    """Source: Kafka's ``Topic.validate``; placeholders are filled in later."""
    plain = re.sub(r"\$\{[^}]*\}", "", text)
    if not re.fullmatch(r"[A-Za-z0-9._*?-]{0,249}", plain) or text in (".", ".."):
        raise ValueError(f"{text!r} is no topic: its name has letters, digits, `.`, `_` and `-`, 249 at most")
    return text


def _split_dotted(text: str) -> tuple[tuple[str, ...], bool]:
    parts: list[str] = []
    glob, quoted_glob = False, False
    position = 0
    while True:
        found = _PART.match(text, position)
        if found is None:
            raise ValueError(f"`{text}` is not a table name")
        if found[1] is not None:
            parts.append(found[1].replace('""', '"'))
            quoted_glob = quoted_glob or is_glob(found[1])
        else:
            parts.append(found[2])
            glob = glob or is_glob(found[2])
        position = found.end()
        if position == len(text):
            break
        if text[position] != ".":
            raise ValueError(f"`{text}` is not a table name")
        position += 1
    if glob and quoted_glob:
        raise ValueError(f"`{text}` mixes a glob with a quoted * or ?")
    return tuple(parts), glob


def _path(text: str) -> str:
    if "://" in text or text.startswith("/"):
        raise ValueError(f"`{text}` is not relative to the connection's path")
    if ".." in text.split("/"):
        raise ValueError(f"`{text}` leaves the connection's path")
    path = text.strip("/")
    if not path:
        raise ValueError("the path is empty")
    return path
