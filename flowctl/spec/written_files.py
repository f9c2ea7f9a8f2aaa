"""What JSON Schema cannot express about a table that is written as files."""

from __future__ import annotations

from flowctl.spec.files_layout import COMPRESSIONS
from flowctl.spec.findings import Findings
from flowctl.spec.node import Node

_OF_CSV = ("header", "delimiter", "quote", "null_value")


def check_written_files(table: Node, findings: Findings) -> None:
    """Of a format of files: its compression, and the keys of CSV."""
    format, type = table.get("to.format"), table.get("to.format.type")
    if format is None or type is None or type.text not in COMPRESSIONS:
        return
    able, compression = COMPRESSIONS[type.text], format.entries.get("compression")  # type: ignore[index]
    if compression is not None and compression.text not in able:
        what = f"files of `type: {type.text}` are not compressed with {compression.text}"
        findings.error(compression, what, f"Use {', '.join(able[:-1])} or {able[-1]}", "unusable-value")
    for key in _OF_CSV:
        if key in format.entries and type.text != "csv":
            hint = "Remove it, or use `type: csv`"
            findings.error(format.entries[key].place, f"`{key}` is of `type: csv`", hint, "unusable-key")
