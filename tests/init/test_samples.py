"""What the first rows of text files show."""

from __future__ import annotations

import io
from functools import partial
from typing import Any

import pytest

from flowctl.connectors.files.samples import CSV_BYTES, csv_format, csv_types, json_schema


@pytest.mark.parametrize(
    ("content", "format"),
    [
        (b"id,name\n1,a\n", {}),
        (b"id;name\n1;a,b\n", {"delimiter": ";"}),
        (b'"a,b";c\n1;2\n', {"delimiter": ";"}),
        (b"\xef\xbb\xbfid\tname\n", {"delimiter": "\t"}),
        (b'id,note\n1,"a\nb"\n', {"multiline": True}),
        ("id,name\n1,é\n".encode("windows-1252"), {"encoding": "windows-1252"}),
        ('\ufeff"id","é"\n1,b\n'.encode("utf-16-le"), {"encoding": "utf-16"}),
        (("\ufeff" + "id;é\n1;é\n" * CSV_BYTES).encode("utf-32-be")[:-1], {"encoding": "utf-32", "delimiter": ";"}),
        (b"", {}),
        (b"id,name\n" + "1,é\n".encode() * CSV_BYTES, {}),
    ],
    ids=[
        "usual", "semicolon", "quoted", "tab and BOM", "line break", "not UTF-8", "UTF-16", "UTF-32", "empty",
        "cut in a letter",
    ],
)  # fmt: skip
def test_the_dialect(content: bytes, format: dict[str, Any]) -> None:
    assert csv_format(partial(io.BytesIO, content))[0] == format


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "-20"], "bigint"),
        (["1", "02"], None),
        (["9" * 19], None),
        (["1.50", "2"], "decimal(38,2)"),
        (["2026-01-31", ""], "date"),
        (["2026-01-31 10:00", "2026-01-31"], "timestamp_ntz"),
        (["2026-01-31T10:00:00Z"], "timestamp"),
        (["true", "False"], "boolean"),
        (["a", "1"], None),
        (["", ""], None),
    ],
)
def test_types_that_fit(values: list[str], kind: str | None) -> None:
    assert csv_types([["a"], *([value] for value in values)]) == ({"a": kind} if kind else {})


@pytest.mark.parametrize(
    ("lines", "schema"),
    [
        (['{"a": 1}', '{"b": "x", "a": 2}'], {"a": "bigint", "b": "string"}),
        (['{"a": 1}', '{"a": 1.5}'], {"a": "double"}),
        (['{"a": 1}', '{"a": "x"}'], {"a": "string"}),
        (['{"a": null}', '{"a": true}'], {"a": "boolean"}),
        (['{"a": null}'], {"a": "string"}),
        (['{"a": {"b": 1}}', '{"a": [1]}'], {"a": "string"}),
        (['{"a": ["x", null]}', '{"a": ["y"]}'], {"a": "array<string>"}),
        (['{"a": [[1]]}'], {"a": "string"}),
        (['{"a": 9223372036854775808}'], {"a": "string"}),
        (["no JSON", "", "[1]", '{"a": 1}'], {"a": "bigint"}),
        (['\ufeff{"a": 1}'], {"a": "bigint"}),
    ],
)
def test_the_columns_of_json_lines(lines: list[str], schema: dict[str, str]) -> None:
    content = "\n".join(lines).encode()
    assert json_schema([partial(io.BytesIO, content)]) == (schema, True)
