"""State documents as indented JSON, and upgrades of older formats. Only this module knows the file format."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from flowctl.errors import AbortRun
from flowctl.model import codec
from flowctl.state import shapes
from flowctl.state.document import FORMAT, StateDocument, TableState

#: For each older format, the function that upgrades it to the next one (JSON to JSON). Documents of format 1 contain
#: the columns and definitions of their tables inline.
UPGRADES: Mapping[int, Callable[[dict[str, Any]], dict[str, Any]]] = {1: lambda content: {**content, "format": 2}}


@dataclass(frozen=True)
class Encoded:
    """``document`` refers to the blob ``shapes`` under ``shapes_name``; both are empty when there are no tables."""

    document: bytes
    shapes_name: str
    shapes: bytes


def encode(document: StateDocument) -> Encoded:
    """UTF-8 JSON, tables sorted by id; equal documents give equal bytes."""
    content = to_json(document)
    tables, blob = shapes.split(content.pop("tables"))
    name = shapes.name_for(blob, document.serial, document.shapes) if blob else ""
    content |= {"shapes": name, "tables": tables}
    return Encoded((json.dumps(content, indent=2, ensure_ascii=False) + "\n").encode(), name, blob)


def decode(data: bytes, name: str, read: Callable[[str], bytes | None]) -> StateDocument:
    """Reads what :func:`encode` of this or an older flowctl wrote; ``read`` returns a shapes blob. ``name`` is for
    error messages. Raises :class:`AbortRun` if the document is damaged, or newer than this flowctl."""
    try:
        content = json.loads(data)
        version = content["format"]
    except (ValueError, KeyError, TypeError) as cause:
        raise _damaged(name, cause) from cause
    if version > FORMAT:
        raise AbortRun(
            f"{name} was written by a newer flowctl (format {version}, this one reads up to {FORMAT})",
            hint="Use that flowctl or a newer one",
        )
    try:
        while content["format"] < FORMAT:
            content = UPGRADES[content["format"]](content)
        if content.get("shapes"):
            blob = read(content["shapes"])
            if blob is None:
                raise ValueError(f"{content['shapes']} is not there")
            content["tables"] = shapes.join(content["tables"], blob)
        return _from_json(content)
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError) as cause:
        raise _damaged(name, cause) from cause


def reference_of(data: bytes) -> tuple[str, str]:
    """``write_id`` and the name of the shapes blob; the rest of the document may be damaged."""
    try:
        content = json.loads(data)
        return str(content["write_id"]), str(content.get("shapes", ""))
    except (ValueError, KeyError, TypeError):
        return "", ""


def to_json(document: StateDocument) -> dict[str, Any]:
    """The whole document, including columns and definitions of tables."""
    return {
        "format": document.format,
        "lineage": document.lineage,
        "serial": document.serial,
        "write_id": document.write_id,
        **({"stream": codec.to_json(document.stream)} if document.stream is not None else {}),
        "tables": {table_id: table_to_json(document.tables[table_id]) for table_id in sorted(document.tables)},
    }


def table_to_json(table: TableState) -> dict[str, Any]:
    """``highest`` is omitted where it equals ``seq``."""
    content: dict[str, Any] = codec.to_json(replace(table, intent=table.intent and table.intent.recorded))
    if table.highest <= table.seq:
        del content["highest"]
    return content


def _from_json(content: Mapping[str, Any]) -> StateDocument:
    tables = {table_id: {"highest": table["seq"], **table} for table_id, table in content["tables"].items()}
    return codec.from_json(StateDocument, {**content, "tables": tables})


def _damaged(name: str, cause: Exception) -> AbortRun:
    return AbortRun(
        f"state document {name} is damaged ({type(cause).__name__}: {cause})",
        hint=(
            "Restore it from a copy of the store, or delete it: the previous number is then the state, and tables "
            "whose target is ahead of it stop until `flowctl state adopt`"
        ),
    )
