"""Messages of CSV: the values of files with the same line, whatever lies beside them, and misfits distinguished."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flowctl.connectors.csv_dialect import Csv
from flowctl.connectors.csv_text import CsvText
from flowctl.connectors.files.csv_parts import CsvReader
from flowctl.connectors.files.own_reading import field_of
from flowctl.connectors.files.parts import Part
from flowctl.connectors.kafka.conversion import Conversion, Payload
from flowctl.connectors.kafka.encodings.csv import CsvDecoder
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.table_info import Column
from tests.connectors.kafka.test_conversion import message
from tests.connectors.sinks import Rows
from tests.examples import examples

COLUMNS = (Column("id", types.INT64), Column("name", types.STRING))
OFFSET = Column("_offset", types.INT64)


def delivered(
    values: Sequence[bytes | None],
    declared: Sequence[Column] = COLUMNS,
    read: Sequence[Column] | None = None,
    dialect: Csv = Csv(),  # noqa: B008 - frozen
) -> tuple[list[dict[str, Any]], list[tuple[int, str, str]]]:
    """The rows, and offset, error and reason of the letters."""
    rows, rejected = Rows(), Rows()
    payload = Payload(declared, values=CsvDecoder(declared, dialect))
    messages = [message(at, value) for at, value in enumerate(values)]
    Conversion("t", payload, (*(declared if read is None else read), OFFSET)).deliver(messages, rows, rejected)
    found = [(one["_flowctl_offset"], one["_flowctl_error"], one["_flowctl_reason"]) for one in rejected.rows()]
    return rows.rows(), found


def test_fields_are_by_position_and_one_line_end_is_none_of_them() -> None:
    rows, letters = delivered([b"1,a", b"2,b\n", b"3,c\r\n", b'4,"d,""e"""', b"5,", b'6,""', b",f", None])
    assert letters == []
    assert [(row["id"], row["name"]) for row in rows] == [
        *((1, "a"), (2, "b"), (3, "c"), (4, 'd,"e"'), (5, None), (6, ""), (None, "f"), (None, None))
    ]
    assert [row["_offset"] for row in rows] == list(range(8))


@pytest.mark.parametrize(
    ("value", "error", "reason"),
    [
        *((value, "not_csv", "not one record of CSV with 2 fields") for value in (
            b"", b"\n", b"1", b"1,a,b", b"1,a\n2,b", b'1,"a', b'1,"a\nb"', b"1,a\rb", b'1,"a" b,c',
        )),
        (b"x,a", "wrong_type", "id is not exactly bigint"),
        (b"1.5,a", "wrong_type", "id is not exactly bigint"),
        (b"9223372036854775808,a", "wrong_type", "id is not exactly bigint"),
        (b"1,\xff", "not_utf8", "the value is not UTF-8"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_a_letter_of_its_own(value: bytes, error: str, reason: str) -> None:
    rows, letters = delivered([b"1,a", value, b"2,b", value, b"3,c"])
    assert [row["id"] for row in rows] == [1, 2, 3]
    assert letters == [(1, error, reason), (3, error, reason)]
    with pytest.raises(TableError, match=f"message 1 of partition 0 of topic t: {reason}"):
        payload = Payload(COLUMNS, values=CsvDecoder(COLUMNS, Csv()))
        Conversion("t", payload, COLUMNS).deliver([message(0, b"1,a"), message(1, value)], Rows(), None)


def test_the_dialect_is_that_of_files() -> None:
    dialect = Csv(delimiter=";", quote="'", null_value="-", encoding="latin-1", multiline=True)
    rows, letters = delivered(["1;'a;\nü'".encode("latin-1"), b"-;-", b"'-';'-'", b"2;b\n3;c"], dialect=dialect)
    assert [(row["id"], row["name"]) for row in rows] == [(1, "a;\nü"), (None, None), (None, None)]
    assert [at for at, *_ in letters] == [3]


def test_a_field_that_is_not_read_may_be_anything() -> None:
    """Whatever lies beside it."""
    for beside in ([], [b"poison"]):
        rows, letters = delivered([b"x,a", *beside], read=COLUMNS[1:])
        assert [row["name"] for row in rows] == ["a"]
        assert len(letters) == len(beside)


_TYPES = ("string", "bigint", "smallint", "decimal(5,2)", "double", "boolean", "date", "timestamp")
_TEXTS = st.one_of(
    st.text(st.sampled_from('a1",;\n\r ü.-'), max_size=5),
    st.sampled_from(
        ["1", "-7", "+3", "32768", "1.25", "1.255", "true", "no", "2026-02-28", "2026-02-30", "NaN", "1e999"]
    ),
    st.sampled_from(
        ["2026-01-02T03:04:05.123456Z", "2026-01-02 03:04", " 4 ", "0x1F", "\ufeff1", '""', '"x"', '"a\nb"']
    ),
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(30), deadline=None)
@given(
    kinds=st.lists(st.sampled_from(_TYPES), min_size=1, max_size=3),
    records=st.lists(st.lists(_TEXTS, min_size=1, max_size=3), max_size=8),
    multiline=st.booleans(),
)
def test_a_message_has_the_values_of_a_file_with_its_line(
    tmp_path: Path, kinds: Sequence[str], records: Sequence[Sequence[str]], multiline: bool
) -> None:
    columns = [Column(f"c{at}", types.parse(kind)) for at, kind in enumerate(kinds)]
    text = CsvText(tuple(map(field_of, columns)), ",", '"', "", multiline)
    values = [",".join(record).encode() for record in records]
    expected, wrong = [], []
    for at, value in enumerate(values):
        line = value.removesuffix(b"\n").removesuffix(b"\r")
        # A byte order mark begins a file, and is of a message as any other text.
        (tmp_path / "t.csv").write_bytes(b"\xef\xbb\xbf" + line + b"\n")
        reader = CsvReader(url=str(tmp_path), options={}, text=text, has_header=False, encoding="UTF-8")
        try:
            found = [row for batch in reader.batches(Part("t.csv", 0, None)) for row in batch.to_pylist()]
        except RuntimeError:
            found = []
        has_break = b"\n" in line or b"\r" in line
        if len(found) == 1 and (multiline or not has_break):
            expected.append({**found[0], "_offset": at})
        else:
            wrong.append(at)
    rows, letters = delivered(values, columns, dialect=Csv(multiline=multiline))
    assert repr(rows) == repr(expected)  # NaN is equal to itself there
    assert [at for at, *_ in letters] == wrong


def test_values_of_every_type() -> None:
    kinds = ("bigint", "decimal(5,2)", "double", "boolean", "date", "timestamp", "timestamp_ntz", "string")
    columns = [Column(f"c{at}", types.parse(kind)) for at, kind in enumerate(kinds)]
    value = b"7,1.5,0.1,yes,2026-01-02,2026-01-02T03:04:05+01:00,2026-01-02 03:04:05,ok"
    [row], letters = delivered([value], columns)
    assert (list(row.values())[:-1], letters) == (
        [
            *(7, Decimal("1.50"), 0.1, True, dt.date(2026, 1, 2), dt.datetime(2026, 1, 2, 2, 4, 5, tzinfo=dt.UTC)),
            *(dt.datetime(2026, 1, 2, 3, 4, 5), "ok"),
        ],
        [],
    )
