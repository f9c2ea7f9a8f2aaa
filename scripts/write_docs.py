"""Writes what the documentation has from the schemas and the connectors' capabilities: the spec reference, the README's
table of connections, and the first table of each connector's page. ``--check`` only reports what would change.

A connector's page is ``docs/TYPE.md``; everything outside the marked table is written by hand.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from flowctl.connectors.registry import capabilities
from flowctl.spec.overview import HEAD, overview
from flowctl.spec.reference import reference
from flowctl.spec.schema import connector_schema, connector_types, role, source_modes, target_modes

ROOT = Path(__file__).parents[1]
BEGIN, END = "<!-- Written by scripts/write_docs.py. -->\n", "<!-- End. -->\n"
_OVERVIEW = re.compile(re.escape("\n".join(HEAD)) + r"\n(\|.*\n)+")
_FACTS = re.compile(re.escape(BEGIN) + r"(.*\n)*?" + re.escape(END))
_POSITIONS = {
    "cursor": "a cursor column; without one, each run reads everything",
    "files": "the files that were read",
    "offsets": "offsets of each partition",
    "version": "versions of the table",
    "none": "none: each run reads everything",
}


def pages() -> Iterator[tuple[Path, str]]:
    """Each generated or partly generated file, with its text as it must be."""
    yield ROOT / "docs" / "spec-reference.md", reference()
    yield ROOT / "README.md", _replaced(ROOT / "README.md", _OVERVIEW, overview())
    for type in connector_types():
        page = ROOT / "docs" / f"{type}.md"
        yield page, _replaced(page, _FACTS, f"{BEGIN}{facts(type)}{END}")


def facts(type: str) -> str:
    """What a connection of this type is and can do: a Markdown table."""
    schema, can = connector_schema(type), capabilities(type)
    rows = {"type": f"`{type}`: {schema['description']}"}
    rows["install"] = f'`pip install "flowctl[{can.extra}]"`' if can.extra else "part of flowctl"
    if url := schema.get("x-url"):
        rows["as a URL"] = f"`{url['example']}`"
    if role(type, "source") is not None and can.source is not None:
        rows["as a source"] = f"{', '.join(source_modes(type))}; continues from {_POSITIONS[can.source.position]}"
    if role(type, "stream") is not None:
        rows["as a stream"] = "inserts, updates, deletions and truncations, in the order of their commits"
    if role(type, "target") is not None and can.target is not None:
        scope = "all its tables of a stream" if can.target.atomic == "database" else "one table"
        rows["as a target"] = f"{', '.join(target_modes(type))}; one commit is atomic for {scope}"
    anchor = f"spec-reference.md#connections-of-type-{type}"
    rows["keys"] = f"[spec reference]({anchor})"
    return "| | |\n|---|---|\n" + "".join(f"| {name} | {text} |\n" for name, text in rows.items())


def _replaced(page: Path, pattern: re.Pattern[str], text: str) -> str:
    found = page.read_text(encoding="utf-8")
    new, count = pattern.subn(lambda _: text, found)
    if count != 1:
        raise SystemExit(f"{page.relative_to(ROOT)}: the place for generated text is there {count} times, not once")
    return new


def main(*arguments: str) -> int:
    stale = {page: text for page, text in pages() if page.read_text(encoding="utf-8") != text}
    for page, text in stale.items():
        if "--check" in arguments:
            print(f"{page.relative_to(ROOT)} is out of date: python scripts/write_docs.py")
        else:
            page.write_text(text, encoding="utf-8")
    return int("--check" in arguments and bool(stale))


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
