"""What executors run to read CSV, without executors: every row once wherever files are cut, misfits by their line."""

from __future__ import annotations

import csv
import datetime as dt
import io
import math
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flowctl.connectors.csv_text import CsvText
from flowctl.connectors.files import text_parts
from flowctl.connectors.files.csv_parts import CsvReader
from flowctl.connectors.files.own_reading import field_of
from flowctl.connectors.files.parts import Part
from flowctl.model import types
from flowctl.model.table_info import Column
from tests.examples import examples


def reader(folder: Path, kinds: Sequence[str], **given: Any) -> CsvReader:
    fields = tuple(field_of(Column(f"c{at}", types.parse(kind))) for at, kind in enumerate(kinds))
    dialect = {"delimiter": ",", "quote": '"', "null_value": "", "multiline": False}
    text = CsvText(fields, **{name: given.pop(name, usual) for name, usual in dialect.items()})
    return CsvReader(url=str(folder), options={}, text=text, **{"has_header": False, "encoding": "UTF-8", **given})


def rows_of(reading: CsvReader, *parts: Part) -> list[tuple[Any, ...]]:
    batches = [batch for part in parts for batch in reading.batches(part)]
    return [tuple(row.values()) for batch in batches for row in batch.to_pylist()]


def values_of(folder: Path, kind: str, *texts: str, **given: Any) -> list[Any]:
    """The second column is there because a line without anything is no row."""
    (folder / "t.csv").write_text("".join(f"{text},x\n" for text in texts), encoding="utf-8")
    return [row[0] for row in rows_of(reader(folder, [kind, "string"], **given), Part("t.csv", 0, None))]


_TEXTS = st.text(st.sampled_from('ab",;\n\r ü🦆\x00'), max_size=6)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(20), deadline=None)
@given(
    rows=st.lists(st.tuples(_TEXTS, _TEXTS), max_size=12),
    block=st.integers(1, 40),
    piece=st.integers(1, 60),
    ending=st.sampled_from(["\n", "\r\n"]),
    has_header=st.booleans(),
    multiline=st.booleans(),
)
def test_every_row_comes_once_wherever_the_file_is_cut(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    rows: list[tuple[str, str]],
    block: int,
    piece: int,
    ending: str,
    has_header: bool,
    multiline: bool,
) -> None:
    monkeypatch.setattr(text_parts, "_BLOCK_BYTES", block)
    if not multiline:
        rows = [(one.translate(_FLAT), other.translate(_FLAT)) for one, other in rows]
    text = io.StringIO()
    written = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator=ending)
    written.writerows([("a", "b"), *rows] if has_header else rows)
    content = text.getvalue().encode()
    (tmp_path / "t.csv").write_bytes(content)
    starts = [0] if multiline else range(0, len(content), piece)
    parts = [Part("t.csv", start, None if multiline else min(start + piece, len(content))) for start in starts]
    reading = reader(tmp_path, ["string", "string"], has_header=has_header, multiline=multiline)
    assert rows_of(reading, *parts) == rows


_FLAT = str.maketrans({"\n": "n", "\r": "r"})


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        ("bigint", "+5", 5),
        ("bigint", " -5 ", -5),
        ("decimal(5,2)", "+1.5000", Decimal("1.50")),
        ("decimal(5,2)", ".5", Decimal("0.50")),
        ("decimal(38,0)", "9" * 38, Decimal("9" * 38)),
        ("double", "-Infinity", -math.inf),
        ("double", "5.", 5.0),
        ("boolean", "Yes", True),
        ("boolean", " f ", False),
        ("date", "0001-01-01", dt.date(1, 1, 1)),
        ("timestamp_ntz", "2026-03-29 02:30", dt.datetime(2026, 3, 29, 2, 30)),
        ("timestamp", "2026-03-29", dt.datetime(2026, 3, 29, tzinfo=dt.UTC)),
        ("timestamp", "2026-03-29T02:30:00.5", dt.datetime(2026, 3, 29, 2, 30, 0, 500000, tzinfo=dt.UTC)),
        ("timestamp", "2026-03-29T02:30:00+02", dt.datetime(2026, 3, 29, 0, 30, tzinfo=dt.UTC)),
        ("timestamp", "2026-03-29 02:30:00-0230", dt.datetime(2026, 3, 29, 5, 0, tzinfo=dt.UTC)),
        ("timestamp", "2026-03-29 02:30:00Z", dt.datetime(2026, 3, 29, 2, 30, tzinfo=dt.UTC)),
        ("bigint", "", None),
        ("bigint", '""', None),
        ("boolean", "", None),
        ("timestamp", '""', None),
        ("string", "", None),
        ("string", '""', ""),
        ("string", '" ""x"" "', ' "x" '),
    ],
)
def test_texts_and_their_values(tmp_path: Path, kind: str, text: str, value: Any) -> None:
    assert values_of(tmp_path, kind, text) == [value]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("bigint", "0x1F"),  # which pyarrow's typed parsing takes for 31
        ("bigint", " "),
        ("tinyint", "128"),
        ("decimal(5,2)", "12345"),  # which pyarrow's typed parsing takes as it is
        ("decimal(5,2)", "1.239"),
        ("decimal(5,2)", "1e2"),
        ("decimal(38,10)", "1" + "0" * 28),
        ("double", "1e999"),
        ("double", "nan"),
        ("float", "1e39"),
        ("date", "2026-02-30"),
        ("date", "2026-1-1"),
        ("timestamp_ntz", "2026-01-01 00:00:00Z"),
        ("timestamp", "2026-01-01 25:00:00"),
        ("boolean", "maybe"),
    ],
)
def test_a_misfit_is_refused_by_its_line(tmp_path: Path, kind: str, text: str) -> None:
    fits = {"date": "2026-01-01", "timestamp": "2026-01-01", "timestamp_ntz": "2026-01-01"}.get(kind, "1")
    with pytest.raises(RuntimeError, match=r"t\.csv line 3: column c0 holds a value that is not exactly") as refused:
        values_of(tmp_path, kind, fits, "", text, text)
    assert text == " " or text not in str(refused.value)


def test_the_text_for_null(tmp_path: Path) -> None:
    assert values_of(tmp_path, "string", "NULL", '"NULL"', "", '""', "null", null_value="NULL") == [
        None, None, None, "", "null",
    ]  # fmt: skip
    assert values_of(tmp_path, "int", "NULL", '"NULL"', "1", null_value="NULL") == [None, None, 1]


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"a,b\n1,2\n\n3\n", 4),
        (b"a,b\n1,2\n1,2,3\n", 3),
        (b'a,b\n1,2\n\n1,"x\ny"\n', 4),
        (b'a,b\n1,2\n1,"x\n3,4\n', 3),
        (b"a,b\n1,2\n1,\xff\n", 3),
    ],
)
@pytest.mark.parametrize("block", [1, 5, 1000])
def test_a_row_that_does_not_fit_is_refused_by_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes, line: int, block: int
) -> None:
    monkeypatch.setattr(text_parts, "_BLOCK_BYTES", block)
    (tmp_path / "t.csv").write_bytes(content)
    parts = [Part("t.csv", 0, 6), Part("t.csv", 6, len(content))]
    with pytest.raises(RuntimeError, match=rf"t\.csv line {line} (holds a row that does not fit|is not UTF-8 text)"):
        rows_of(reader(tmp_path, ["string", "string"], has_header=True), *parts)


@pytest.mark.parametrize("encoding", ["ISO-8859-1", "windows-1252", "UTF-16", "UTF-16LE", "UTF-8"])
def test_encodings(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "t.csv").write_text("ü,é\nß,x\n", encoding=encoding)
    reading = reader(tmp_path, ["string", "string"], encoding=encoding)
    assert rows_of(reading, Part("t.csv", 0, None)) == [("ü", "é"), ("ß", "x")]


def test_another_encoding_than_said(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_bytes(b"a,\xff\xfe\n")
    with pytest.raises(RuntimeError, match=r"t\.csv line 1 is not US-ASCII text"):
        rows_of(reader(tmp_path, ["string", "string"], encoding="US-ASCII"), Part("t.csv", 0, None))
    (tmp_path / "t.csv").write_text("a,x\nb,ü\nc,many\n", encoding="ISO-8859-1")
    with pytest.raises(RuntimeError, match=r"t\.csv line 1: column c1"):
        rows_of(reader(tmp_path, ["string", "int"], encoding="ISO-8859-1"), Part("t.csv", 0, None))


def test_byte_order_marks(tmp_path: Path) -> None:
    """One at the beginning of a file is none of its text; any other is."""
    (tmp_path / "t.csv").write_bytes("\ufeffa,b\n\ufeffc,d\n".encode())
    reading = reader(tmp_path, ["string", "string"])
    assert rows_of(reading, Part("t.csv", 0, 3), Part("t.csv", 3, 16)) == [("a", "b"), ("\ufeffc", "d")]


def test_no_secret_shows() -> None:
    text = CsvText((), ",", '"', "", False)
    shown = repr(CsvReader(url="s3://b", options={"secret": "hunter2"}, text=text, has_header=True))
    assert "hunter2" not in shown
