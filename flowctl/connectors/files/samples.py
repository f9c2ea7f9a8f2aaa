"""What the first rows of text files show, for `flowctl init`: the dialect of CSV, and types that fit."""

from __future__ import annotations

import codecs
import csv
import io
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

from flowctl.connectors.csv_dialect import Csv
from flowctl.connectors.exact import text_shape
from flowctl.connectors.files.formats import marked_encoding
from flowctl.model import types
from flowctl.model.types import Array, DataType

#: How much of each file is looked at: bytes of CSV, lines of JSON.
CSV_BYTES = 256 * 1024
JSON_LINES = 100_000
#: How many files of one table are looked at.
FILES = 20

_DELIMITERS = (",", ";", "\t", "|")
#: The first type that fits all values is proposed; text fits always.
_KINDS = (types.INT64, types.DATE, types.TIMESTAMP_NTZ, types.TIMESTAMP)
_LONGEST_INTEGER = 18
_USUAL_ENCODING = "utf-8-sig"  # UTF-8, perhaps with a byte order mark

Opened = Callable[[], Any]


def csv_format(opened: Opened) -> tuple[dict[str, Any], list[list[str]]]:
    """The keys of `format` that the file needs, and its first rows, its header included. ``opened`` opens it for
    reading decompressed bytes."""
    with opened() as raw:
        start = raw.read(CSV_BYTES)
    encoding, text = _decoded(start)
    format: dict[str, Any] = {"encoding": encoding} if encoding != _USUAL_ENCODING else {}
    delimiter = _delimiter(text)
    if delimiter != Csv.delimiter:
        format["delimiter"] = delimiter
    rows, is_multiline = _rows(text, delimiter)
    if is_multiline:
        format["multiline"] = True
    return format, rows


def csv_types(rows: Sequence[Sequence[str]]) -> dict[str, str]:
    """Types that fit every value below the header, for the columns where one other than text does."""
    if len(rows) < 2:
        return {}
    header, *values = rows
    found = {}
    for at, name in enumerate(header):
        texts = [row[at] for row in values if at < len(row) and row[at] != Csv.null_value]
        if texts and (kind := _fitting(texts)) is not None:
            found[name] = types.short(kind)
    return found


def json_schema(files: Iterable[Opened]) -> tuple[dict[str, str], bool]:
    """The columns of JSON Lines with types that fit, in order of appearance; and whether every line was looked at."""
    seen: dict[str, DataType | None] = {}
    is_whole = True
    for opened in files:
        with opened() as raw:
            lines = iter(io.TextIOWrapper(raw, encoding=_USUAL_ENCODING, errors="replace"))
            for line in islice(lines, JSON_LINES):
                for name, value in _object(line).items():
                    seen[name] = _together(seen[name], _kind(value)) if name in seen else _kind(value)
            is_whole &= next(lines, None) is None
    return {name: types.short(kind or types.STRING) for name, kind in seen.items()}, is_whole


def _object(line: str) -> Mapping[str, Any]:
    try:
        found = json.loads(line)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _kind(value: Any) -> DataType | None:
    """None for null. What has parts of its own is read as text, which is JSON."""
    match value:
        case None:
            return None
        case bool():
            return types.BOOL
        case int():
            return types.INT64 if -(2**63) <= value < 2**63 else types.STRING
        case float():
            return types.DOUBLE
        case list() if value and all(not isinstance(item, dict | list) for item in value):
            kinds = {_kind(item) for item in value} - {None}
            return Array(kinds.pop() or types.STRING) if len(kinds) == 1 else types.STRING
        case _:
            return types.STRING


def _together(one: DataType | None, other: DataType | None) -> DataType | None:
    if one is None or other is None or one == other:
        return one or other
    return types.DOUBLE if {one, other} == {types.INT64, types.DOUBLE} else types.STRING


def _fitting(texts: Sequence[str]) -> DataType | None:
    if all(re.fullmatch(r"(?i)true|false", text) for text in texts):
        return types.BOOL
    if all(re.fullmatch(r"[+-]?\d+\.\d+|[+-]?\d+", text) for text in texts) and any("." in text for text in texts):
        scale = max(len(text.partition(".")[2]) for text in texts)
        return types.Decimal(38, scale) if scale <= _LONGEST_INTEGER else types.DOUBLE
    return next((kind for kind in _KINDS if all(_fits(text, kind) for text in texts)), None)


def _fits(text: str, kind: DataType) -> bool:
    """Numbers with leading zeros are codes: as numbers they would lose these."""
    if kind == types.INT64 and (re.match(r"[+-]?0\d", text) or len(text) > _LONGEST_INTEGER):
        return False
    return re.match(text_shape(kind), text) is not None


def _decoded(start: bytes) -> tuple[str, str]:
    """The encoding that a file seems to have, and its text, up to the last whole line if the file goes on."""
    is_whole = len(start) < CSV_BYTES
    encoding = marked_encoding(start) or _USUAL_ENCODING
    try:
        text = codecs.getincrementaldecoder(encoding)().decode(start, is_whole)
    except UnicodeDecodeError:
        encoding = "windows-1252"
        text = start.decode(encoding, "replace")
    return encoding, text if is_whole or "\n" not in text else text[: text.rfind("\n") + 1]


def _delimiter(text: str) -> str:
    """The sign that separates the most names in the header, outside of quotes."""
    line = re.sub(r'"[^"]*"', "", next(iter(text.splitlines()), ""))
    best = max(_DELIMITERS, key=line.count)
    return best if best in line else Csv.delimiter


def _rows(text: str, delimiter: str) -> tuple[list[list[str]], bool]:
    """The rows, without the last one of a part, and whether a value has a line break."""
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    rows, is_multiline = list(_readable(reader)), False
    is_multiline = any("\n" in value or "\r" in value for row in rows for value in row)
    return rows, is_multiline


def _readable(reader: Iterator[list[str]]) -> Iterator[list[str]]:
    try:
        yield from (row for row in reader if row)
    except csv.Error:
        return
