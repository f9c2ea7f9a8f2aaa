"""The README's table of connections, from the schemas; ``scripts/write_docs.py`` writes it."""

from __future__ import annotations

from collections.abc import Iterator

from flowctl.spec.schema import Schema, connector_schema, connector_types, definition, role, source_modes, target_modes

HEAD = ("| connection | reads | writes | modes |", "|---|---|---|---|")


def overview() -> str:
    """One row for each type, in the order of their titles: Markdown."""
    types = sorted(connector_types(), key=lambda type: connector_schema(type)["title"].casefold())
    return "\n".join((*HEAD, *map(_row, types))) + "\n"


def _row(type: str) -> str:
    schema = connector_schema(type)
    source, stream, target = (role(type, side) for side in ("source", "stream", "target"))
    reads = ", ".join(filter(None, [_summary(source), _summary(stream) if stream is not None else ""]))
    return f"| {schema.get('x-summary', schema['title'])} | {reads} | {_summary(target)} | {'; '.join(_modes(type))} |"


def _summary(side: Schema | None) -> str:
    """What ``x-summary`` says, in Markdown; a side without one is just there."""
    return "not yet" if side is None else str(side.get("x-summary", "yes"))


def _modes(type: str) -> Iterator[str]:
    """Those of a target, and those of tables that read it where it has modes of its own."""
    if role(type, "target") is not None:
        yield ", ".join(target_modes(type))
    own = source_modes(type)
    if role(type, "source") is not None and len(own) < len(definition("modes")):
        yield f"as a source {', '.join(own)}"
