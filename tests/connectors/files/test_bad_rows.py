"""Rows of text files that cannot be read, without executors: found by their line, kept with their text, and all others
are read."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from flowctl.connectors import letters
from flowctl.connectors.arrow import arrow_type
from flowctl.connectors.csv_text import CsvText
from flowctl.connectors.files import parts, text_parts
from flowctl.connectors.files.csv_parts import CsvReader
from flowctl.connectors.files.json_parts import JsonReader
from flowctl.connectors.files.own_reading import field_of, nested_field
from flowctl.connectors.files.parts import Part, PartReader
from flowctl.model import types
from flowctl.model.table_info import Column
from tests.examples import examples

COLUMNS = (Column("n", types.INT32), Column("t", types.STRING))


def csv_reader(folder: Path, **given: Any) -> CsvReader:
    delimiter, multiline = given.pop("delimiter", ","), given.pop("multiline", True)
    text = CsvText(tuple(map(field_of, COLUMNS)), delimiter, '"', "", multiline)
    usual = {"has_header": True, "rejects": True, "has_places": True}
    return CsvReader(url=str(folder), options={}, text=text, **{**usual, **given})


def json_reader(folder: Path, columns: Sequence[Column] = COLUMNS, **given: Any) -> JsonReader:
    fields = tuple(map(nested_field, columns))
    return JsonReader(url=str(folder), options={}, columns=fields, **{"rejects": True, "has_places": True, **given})


class Read(NamedTuple):
    good: list[tuple[Any, ...]]
    #: Line, text and reason.
    bad: list[tuple[int, str, str]]


def read(reader: PartReader, name: str) -> Read:
    found = [row for batch in reader.batches(Part(name)) for row in batch.to_pylist()]
    places = [row["_flowctl_place"] for row in found]
    assert places == sorted(set(places)), "positions rise"
    names = [field.name for field in reader.fields]
    rejected = [row for row in found if row["_flowctl_reason"] is not None]
    assert all(row["_flowctl_source_file"] == name and row["n"] is None for row in rejected)
    return Read(
        [tuple(row[name] for name in names) for row in found if row["_flowctl_reason"] is None],
        [(row["_flowctl_line"], row["_flowctl_raw"], row["_flowctl_reason"]) for row in rejected],
    )


def refused(reader: PartReader, name: str) -> str:
    with pytest.raises(RuntimeError) as error:
        list(reader.batches(Part(name)))
    return str(error.value)


def test_executors_know_the_columns_of_bad_rows() -> None:
    wanted = {column.name: arrow_type(column.type) for column in letters.BAD_ROW_COLUMNS}
    assert wanted == parts._BAD_ROW_TYPES


_TEXT = st.text(st.sampled_from('ab",;\n\r ü🦆\x00'), max_size=6)
_GOOD = st.tuples(st.integers(-(2**31), 2**31 - 1), _TEXT)
_BAD = st.one_of(
    st.tuples(st.sampled_from(["x", "1.0", str(2**31), " "]), _TEXT),
    st.tuples(st.just("1"), _TEXT, _TEXT),
    st.tuples(st.just("1")),
    st.tuples(st.just("2"), st.just("\udcff")),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(15), deadline=None)
@given(
    rows=st.lists(st.one_of(_GOOD, _GOOD, _BAD), max_size=12),
    block=st.integers(1, 60),
    ending=st.sampled_from(["\n", "\r\n", "\r"]),
    ends=st.booleans(),
)
def test_bad_rows_of_csv(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: list[tuple[Any, ...]], block: int, ending: str, ends: bool
) -> None:
    monkeypatch.setattr(text_parts, "_BLOCK_BYTES", block)
    content, good, bad = _line(("n", "t"), ending), [], []
    for row in rows:
        text = _line(row, ending)
        if isinstance(row[0], int):
            good.append((row[0], row[1]))
        else:
            raw = text.removesuffix(ending).replace("\udcff", "\\xff").replace("\0", "\\x00")
            bad.append((_lines(content) + 1, raw))
        content += text
    (tmp_path / "t.csv").write_bytes(
        (content if ends else content.removesuffix(ending)).encode(errors="surrogateescape")
    )
    found = read(csv_reader(tmp_path), "t.csv")
    assert found.good == good
    assert [(line, raw) for line, raw, _ in found.bad] == bad
    if bad:
        reading = csv_reader(tmp_path, rejects=False)
        assert f"t.csv line {bad[0][0]}" in refused(reading, "t.csv")


def _line(row: Sequence[Any], ending: str) -> str:
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator=ending).writerow(row)
    return text.getvalue()


def _lines(text: str) -> int:
    return len(text.encode(errors="surrogateescape").replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")) - 1


@pytest.mark.parametrize(
    ("content", "good", "bad"),
    [
        ('n,t\n1,a\n2,"b\nc"\n3,d\n', [(1, "a"), (3, "d")], [(3, '2,"b\nc"', "line break")]),
        ('n,t\n1,"a\n2,b\n3,c\n', [(2, "b"), (3, "c")], [(2, '1,"a', "a quote is not closed")]),
        (
            "n,t\n1\n2,a,b\n3,c",
            [(3, "c")],
            [(2, "1", "it has 1 values, not 2"), (3, "2,a,b", "it has 3 values, not 2")],
        ),
        ("n,t\n\n\nx,1\n", [], [(4, "x,1", "column n holds a value that is not exactly int")]),
        ("n,t\n", [], []),
        ("n,t\n \n\u00a0\n\x0b\nx,1\n\t\n2,a\n3,b,c\n", [(2, "a")], [(5, "x,1", "int"), (8, "3,b,c", "3 values")]),
        ('\ufeffn,t\n1,a\n"",b\n,\n', [(1, "a"), (None, "b"), (None, None)], []),
    ],
)
def test_without_multiline_a_row_with_a_line_break_is_bad_as_a_whole(
    tmp_path: Path, content: str, good: list[Any], bad: list[tuple[int, str, str]]
) -> None:
    """What follows it is read as rows of their own only if no quote closes its value."""
    (tmp_path / "t.csv").write_text(content)
    found = read(csv_reader(tmp_path, multiline=False), "t.csv")
    assert found.good == good
    assert [one[:2] for one in found.bad] == [one[:2] for one in bad]
    assert all(wanted in reason for (_, _, reason), (_, _, wanted) in zip(found.bad, bad, strict=True))


@pytest.mark.parametrize(("delimiter", "kept"), [(",", ",,"), ("\t", "\t\t"), (" ", "   "), (";", " ; ; ")])
@pytest.mark.parametrize("ending", ["\n", "\r\n"])
def test_a_line_is_blank_only_without_a_delimiter(tmp_path: Path, delimiter: str, kept: str, ending: str) -> None:
    lines = [f"n{delimiter}t", "", kept, f"{delimiter}", "\u00a0", f"1{delimiter}a", kept]
    (tmp_path / "t.csv").write_bytes(ending.join([*lines, ""]).encode())
    found = read(csv_reader(tmp_path, delimiter=delimiter), "t.csv")
    assert found.good == [(None, None), (1, "a")]
    count = kept.count(delimiter) + 1
    assert found.bad == [(line, kept, f"it has {count} values, not 2") for line in (3, 7)]
    assert "t.csv line 3 holds a row" in refused(csv_reader(tmp_path, delimiter=delimiter, rejects=False), "t.csv")


def test_spaces_in_a_file_with_one_column_are_a_value(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("t\n \n\n\t\na\n")
    text = CsvText((field_of(COLUMNS[1]),), "\t", '"', "", False)
    reader = CsvReader(url=str(tmp_path), options={}, text=text, has_header=True, rejects=True)
    rows = [row for batch in reader.batches(Part("t.csv")) for row in batch.to_pylist()]
    assert [(row["t"], row["_flowctl_line"], row["_flowctl_raw"]) for row in rows] == [
        (" ", None, None), (None, 4, "\t"), ("a", None, None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("encoding", "wrong", "shown"),
    [
        ("windows-1252", b"\x81", "\\x81"),
        ("ascii", b"\xc3\xbc", "\\xc3\\xbc"),
        ("UTF-16LE", b"\x00\xdc", "\\x00\\xdc"),
        ("shift_jis", b"\xfd\xfe", "\\xfd\\xfe"),
    ],
)
@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_bytes_that_are_no_text(tmp_path: Path, form: str, encoding: str, wrong: bytes, shown: str) -> None:
    before, row, after = ("n,t\n1,a\n", "2,", "\n3,b\n") if form == "csv" else ('{"n":1}\n{}\n', '{"n":2}', "\n{}\n")
    content = (before + row).encode(encoding) + wrong + after.encode(encoding)
    (tmp_path / f"t.{form}").write_bytes(content)
    make = csv_reader if form == "csv" else json_reader
    (bad,) = read(make(tmp_path, encoding=encoding), f"t.{form}").bad
    assert bad == (3, f"{row}{shown}", f"is not {encoding} text")
    message = refused(make(tmp_path, encoding=encoding, rejects=False), f"t.{form}")
    assert f"t.{form} line 3 is not {encoding} text" in message and "`format.encoding`" in message


_NAME = st.sampled_from(["n", "t", "more", "n "])
_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.text(st.characters(codec="utf-8"), max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=3),
    max_leaves=5,
)
_OBJECT = st.dictionaries(_NAME, _VALUE, max_size=4)
_NO_OBJECT = st.sampled_from(
    ["{", "[]", "1", "null", '{"n":1}{}', '{"n":1,"n":2}', '{"n":NaN}', '{"n":01}', "{'n':1}", '{"t":"\\ud800"}']
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(15), deadline=None)
@given(lines=st.lists(st.one_of(_OBJECT, _OBJECT, _NO_OBJECT), max_size=10), block=st.integers(1, 60))
def test_bad_rows_of_json_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lines: list[dict[str, Any] | str], block: int
) -> None:
    """The oracle is Python's own parser, of numbers that it does not round."""
    monkeypatch.setattr(text_parts, "_BLOCK_BYTES", block)
    texts = [line if isinstance(line, str) else json.dumps(line, ensure_ascii=False) for line in lines]
    (tmp_path / "t.jsonl").write_text("".join(f"{text}\n" for text in texts), encoding="utf-8", newline="")
    assume(not any(isinstance(line, dict) and isinstance(line.get("n"), str) for line in lines))  # it may be a number
    columns = (Column("n", types.Decimal(38, 0)), Column("t", types.STRING))
    found = read(json_reader(tmp_path, columns), "t.jsonl")
    is_good = [_fits(line) for line in lines]
    assert [(line, raw) for line, raw, _ in found.bad] == [
        (at, text.replace("\0", "\\x00"))
        for at, (text, good) in enumerate(zip(texts, is_good, strict=True), 1)
        if not good
    ]
    whole = [line for line, good in zip(lines, is_good, strict=True) if good and isinstance(line, dict)]
    assert found.good == [(line.get("n"), _as_text(line.get("t"))) for line in whole]


def _fits(line: dict[str, Any] | str) -> bool:
    if isinstance(line, str):
        return False
    n = line.get("n")
    return n is None or (isinstance(n, int) and not isinstance(n, bool))


def _as_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True)


def test_json_has_no_words_for_other_types(tmp_path: Path) -> None:
    """Lists and objects, and numbers with an exponent."""
    columns = (
        Column("n", types.Decimal(6, 2)),
        Column("l", types.Array(types.INT64)),
        Column("o", types.Struct((("a", types.DATE), ("b", types.Array(types.STRING))))),
    )
    lines = [
        ('{"n": 1.2e3, "l": [1, null], "o": {"b": ["x", 1.50], "a": "2026-01-01"}}', True),
        ('{"n": 1.2e-3}', False),
        ('{"n": 1e99999999}', False),
        ('{"l": [1.5]}', False),
        ('{"l": {}}', False),
        ('{"l": [], "o": {}}', True),
        ('{"o": []}', False),
        ('{"o": {"a": "2026-02-30"}}', False),
        ("[" * 100_000, False),
    ]
    (tmp_path / "t.jsonl").write_text("".join(f"{line}\n" for line, _ in lines))
    found = read(json_reader(tmp_path, columns), "t.jsonl")
    assert [line for line, _, _ in found.bad] == [at for at, (_, good) in enumerate(lines, 1) if not good]
    first, second = found.good
    assert (str(first[0]), first[1]) == ("1200.00", [1, None]) and first[2]["b"] == ["x", "1.50"]
    assert second == (None, [], {"a": None, "b": None})
