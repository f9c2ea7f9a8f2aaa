"""Columns and definitions of tables, kept next to the state documents: most of a document's bytes, and rarely changed.

``shapes/<serial>-<digest>.json`` holds those of all tables of a document. ``serial`` is that of the first document that
refers to it, so later documents never refer to lower serials. A document refers only to a blob that already exists.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from typing import Any

FOLDER = "shapes/"
#: The fields that are stored outside the document.
_KEYS = ("definition", "schema", "target_columns")
_NAME = re.compile(re.escape(FOLDER) + r"(\d+)-([0-9a-f]{64})\.json")


def split(tables: Mapping[str, Mapping[str, Any]]) -> tuple[dict[str, dict[str, Any]], bytes]:
    """The tables of a document without their shapes, and the blob with the shapes, empty if there are no tables."""
    shapes = {id: {key: table[key] for key in _KEYS} for id, table in tables.items()}
    rest = {id: {key: value for key, value in table.items() if key not in _KEYS} for id, table in tables.items()}
    return rest, (json.dumps(shapes, indent=1, ensure_ascii=False) + "\n").encode() if shapes else b""


def join(tables: Mapping[str, Mapping[str, Any]], blob: bytes) -> dict[str, dict[str, Any]]:
    """The inverse of :func:`split`. ``ValueError`` or ``KeyError`` if the blob does not match the tables."""
    shapes = json.loads(blob) if tables else {}
    return {id: {**table, **shapes[id]} for id, table in tables.items()}


def name_for(blob: bytes, serial: int, before: str) -> str:
    """The name under which the document ``serial`` refers to ``blob``: ``before``, the previous document's name, if
    the content is the same."""
    digest = hashlib.sha256(blob).hexdigest()
    known = _NAME.fullmatch(before)
    return before if known and known[2] == digest else f"{FOLDER}{serial}-{digest}.json"


def serial_of(name: str) -> int:
    """The serial in the name of a shapes blob; 0 for any other name."""
    found = _NAME.fullmatch(name)
    return int(found[1]) if found else 0
