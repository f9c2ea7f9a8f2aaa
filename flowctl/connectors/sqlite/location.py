"""The file of a connection: `path` is a path, or a URI that begins with ``file:`` and says how the file is opened.

Source: sqlite.org, "Uniform Resource Identifiers".
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args
from urllib.parse import unquote_to_bytes

from flowctl.errors import TableError
from flowctl.spec.secrets import Revealed

Mode = Literal["ro", "rw", "rwc"]
_FLAGS = {"1": True, "yes": True, "true": True, "on": True, "0": False, "no": False, "false": False, "off": False}


@dataclass(frozen=True)
class Location:
    """``path`` is relative to the spec, or absolute. ``rw`` creates no file. ``is_immutable``: nobody changes the file
    while it is read, so SQLite takes no locks and needs no files next to it."""

    path: str
    mode: Mode = "rwc"
    is_immutable: bool = False

    @property
    def why_read_only(self) -> str:
        """The parameter that prevents writing; empty if none does."""
        return "immutable=1" if self.is_immutable else "mode=ro" if self.mode == "ro" else ""


def location_of(path: str) -> Location:
    """Raises :class:`TableError` for a URI that names no file, or has parameters that flowctl does not take."""
    if not path.startswith("file:"):
        return Location(path)
    text, _, query = path.removeprefix("file:").partition("#")[0].partition("?")
    if text.startswith("//"):
        authority, _, text = text[2:].partition("/")
        if authority not in ("", "localhost"):
            raise _malformed("it names another machine", "Write file:///FOLDER/FILE, with three slashes")
        text = f"/{text}"
    decoded = unquote_to_bytes(text)
    if not decoded.strip(b"/") or b"\0" in decoded:
        raise _malformed("it names no file", "Write file:FILE or file:///FOLDER/FILE")
    mode, is_immutable = "rwc", False
    for parameter in filter(None, query.split("&")):
        name, _, value = (os.fsdecode(unquote_to_bytes(part)) for part in parameter.partition("="))
        if name == "mode" and value in get_args(Mode):
            mode = value
        elif name == "immutable" and value.lower() in _FLAGS:
            is_immutable = _FLAGS[value.lower()]
        else:
            hint = "Use mode=ro, mode=rw, mode=rwc or immutable=1, and leave out others"
            raise _malformed(f"flowctl does not take its parameter {name}={value}", hint)
    return Location(os.fsdecode(decoded), cast(Mode, mode), is_immutable)


def as_path(options: Mapping[str, Any]) -> dict[str, Any]:
    """``options`` with a plain path in place of a URI. A malformed one is left for :func:`location_of` to report."""
    given = options["path"]
    try:
        path = location_of(str(given)).path
    except TableError:
        return dict(options)
    return {**options, "path": Revealed(path) if isinstance(given, Revealed) else path}


def _malformed(flaw: str, hint: str) -> TableError:
    return TableError(f"`path` of the connection is not a URI of an SQLite file: {flaw}", hint=hint)
