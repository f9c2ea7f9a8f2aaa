"""Reads which columns a file of each format has, without Spark.

Text formats have no types: their columns are text unless ``format.schema`` gives types, and each value is then
converted exactly or refused. Nothing is inferred from a sample, because the next file may differ from it.
"""

from __future__ import annotations

import base64
import codecs
import io
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, cast, get_args

from flowctl.connectors.arrow import data_type
from flowctl.connectors.csv_dialect import Csv, dialect_of
from flowctl.connectors.files.compressed import CODECS
from flowctl.errors import TableError
from flowctl.model import types
from flowctl.model.table_info import Column

if TYPE_CHECKING:
    import pyarrow as pa

FormatName = Literal["csv", "jsonl", "parquet", "orc", "avro"]
_BY_EXTENSION: Mapping[str, FormatName] = {
    "csv": "csv",
    "jsonl": "jsonl",
    "ndjson": "jsonl",
    "parquet": "parquet",
    "orc": "orc",
    "avro": "avro",
}
#: What flowctl does not decompress: fsspec reads the first file of a .zip alone, and takes others for text.
_OTHER_CODECS = (".zip", ".xz", ".lzma", ".lz4", ".sz", ".snappy", ".7z", ".rar", ".tar", ".tgz", ".tbz2")
_SEPARATOR = "\x1f"
_OTHER_DELIMITERS = (";", "\t", "|")


@dataclass(frozen=True)
class Format:
    """``name`` selects the reader; ``options`` are the spec's ``format`` keys; ``declared`` its ``schema``."""

    name: FormatName
    options: Mapping[str, Any]
    declared: tuple[Column, ...]

    @property
    def is_text(self) -> bool:
        """Text files may be compressed as a whole; the other formats compress internally."""
        return self.name in ("csv", "jsonl")

    @property
    def partitions(self) -> tuple[Column, ...]:
        """The columns that folders named ``name=value`` have."""
        return tuple(Column(name, types.parse(kind)) for name, kind in self.options.get("partitions", {}).items())

    @property
    def has_source_file(self) -> bool:
        return self.options.get("source_file") is True

    @property
    def keeps_bad_rows(self) -> bool:
        """Whether rows that cannot be read go to quarantine."""
        return self.options.get("on_fail") == "quarantine"

    @property
    def csv(self) -> Csv:
        return dialect_of(self.options)

    @property
    def is_common_csv(self) -> bool:
        """Whether pyarrow reads these files as Spark does: it supports only one-byte delimiters and doubled quotes."""
        signs = (self.csv.delimiter, self.csv.quote)
        is_doubled = self.csv.escape == self.csv.quote
        return self.name == "csv" and is_doubled and all(len(sign) == 1 and sign.isascii() for sign in signs)


def format_of(pattern: str, options: Mapping[str, Any]) -> Format:
    """From ``format.type``, else from the pattern's extension; ``TableError`` if neither names a supported format, or
    the extension is of a compression that flowctl does not read."""
    name = options.get("type") or by_extension(pattern)
    if name in (None, "csv", "jsonl"):
        require_known_codec(pattern)
    if name not in get_args(FormatName):
        raise TableError(
            f"files of {pattern} have no format that this version reads",
            hint="Set format.type to csv, jsonl, parquet, orc or avro",
        )
    declared = tuple(Column(column, types.parse(kind)) for column, kind in options.get("schema", {}).items())
    return Format(cast(FormatName, name), options, declared)


def require_known_codec(path: str) -> None:
    """``TableError`` for a text file, or a pattern of such files, that is compressed in another way than flowctl
    reads."""
    plain = _decompressed(path)
    if ending := next((one for one in _OTHER_CODECS if plain.endswith(one)), None):
        raise TableError(
            f"{path} is compressed as {ending}; text files are read as they are, or as {', '.join(CODECS)}",
            hint="Write it in one of these forms, or leave it out of the pattern in `from`",
        )


def require_types(format: Format) -> None:
    """``TableError`` for the first column of ``format.schema`` or ``format.partitions`` whose type no text is read
    as."""
    schema = [("schema", column) for column in format.declared] if format.is_text else []
    for key, column in (*schema, *(("partitions", column) for column in format.partitions)):
        is_json = format.name == "jsonl" and key == "schema"
        if not _is_of_text(column.type, is_json=is_json):
            function = "unbase64" if column.type == types.BINARY else "from_json"
            way = f"; with spark.url local[*], `columns.add` converts it, with {function}" if key == "schema" else ""
            raise TableError(
                f"column {column.name} of `format.{key}` is {types.short(column.type)}, which no text is read as",
                hint=f"Set {column.name} to string, which keeps its text{way}",
            )


def _is_of_text(kind: types.DataType, *, is_json: bool) -> bool:
    """JSON has structs, and arrays of what has no parts of its own: Spark's own reader takes apart no others."""
    match kind:
        case types.Array(types.Array() | types.Struct()):
            return False
        case types.Array(item):
            return is_json and _is_of_text(item, is_json=True)
        case types.Struct(fields):
            return is_json and all(_is_of_text(of, is_json=True) for _, of in fields)
        case _:
            return kind != types.BINARY


def own_only(format: Format) -> str:
    """What only flowctl's own readers read, as the spec has it; empty if there is nothing of that kind."""
    if format.name == "avro":
        return "`format.type` avro"
    return next((f"`format.{key}`" for key in ("partitions", "source_file", "on_fail") if _is_set(format, key)), "")


def _is_set(format: Format, key: str) -> bool:
    return bool(format.options.get(key)) and format.options[key] != "fail"


def by_extension(pattern: str) -> FormatName | None:
    """The format that the extension names; None for one that this version does not read."""
    return _BY_EXTENSION.get(_decompressed(pattern).rpartition(".")[2])


def _decompressed(path: str) -> str:
    """In lower case, without the ending of a codec."""
    plain = path.lower()
    for ending in CODECS:
        plain = plain.removesuffix(ending)
    return plain


def columns_of_file(format: Format, opened: Callable[[], Any], path: str) -> tuple[Column, ...]:
    """The columns of one file; ``opened`` opens it for reading decompressed bytes."""
    match format.name:
        case "csv":
            return _csv_columns(format, opened, path)
        case "jsonl":
            if not format.declared:
                raise TableError(f"{path}: JSON lines do not say which columns they have", hint="Set format.schema")
            return format.declared
        case "parquet":
            with opened() as stream:
                return _parquet_columns(stream, path)
        case "avro":
            from flowctl.connectors.files.avro_files import avro_columns

            with opened() as stream:
                return avro_columns(stream)
        case "orc":
            import pyarrow.orc

            with opened() as stream:
                return _arrow_columns(_in_microseconds(pyarrow.orc.ORCFile(stream).schema), path)


def _parquet_columns(stream: Any, path: str) -> tuple[Column, ...]:
    """``native`` is the type that the file was written with, where pyarrow reads it as another."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = pq.ParquetFile(stream)
    columns, recorded = _arrow_columns(file.schema_arrow, path), (file.metadata.metadata or {}).get(b"ARROW:schema")
    if recorded is None:
        return columns
    written = pa.ipc.read_schema(pa.py_buffer(base64.b64decode(recorded)))
    natives = {field.name: str(field.type) for field in written if "date64" in str(field.type)}
    return tuple(replace(column, native=natives.get(column.name, column.native)) for column in columns)


def _in_microseconds(schema: pa.Schema) -> pa.Schema:
    """Timestamps of ORC always have nanoseconds: whether they are only zeros is found when rows are read."""
    import pyarrow as pa

    def of(kind: pa.DataType) -> pa.DataType:
        if pa.types.is_timestamp(kind):
            return pa.timestamp("us", kind.tz)
        if pa.types.is_list(kind):
            return pa.list_(of(kind.value_type))
        return pa.struct([field.with_type(of(field.type)) for field in kind]) if pa.types.is_struct(kind) else kind

    return pa.schema([field.with_type(of(field.type)) for field in schema])


def _check_header(names: Sequence[str], path: str) -> None:
    if not any(names):
        hint = "Remove it, or wait until it is written whole"
        raise TableError(f"{path} has no header: its first line is empty", hint=hint)
    if "" in names:
        raise TableError(f"{path}: the header has no name for column {names.index('') + 1}", hint="Fix its header")
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise TableError(f"{path}: the header names column {twice} twice", hint="Fix its header")


def check_delimiters(format: Format, found: Mapping[str, Sequence[Column]]) -> None:
    """``TableError`` for a file whose header is one name with another delimiter in it. ``found`` has columns by path.
    All files are read with one delimiter, so if it separates the columns of others, this file is the one to change."""
    signs = {path: _other_delimiter(format, [column.name for column in columns]) for path, columns in found.items()}
    path = next((path for path, sign in signs.items() if sign), None)
    if path is None:
        return
    option, is_one = (f"`format: {{delimiter: {json.dumps(one)}}}`" for one in (signs[path], Csv.delimiter))
    other = next((path for path, columns in found.items() if len(columns) > 1), None)
    way = f"Set {option}, or"
    if other is not None:
        way = f"Write it with {Csv.delimiter!r} as {other} is, or leave it out of the pattern in `from`; set"
    raise TableError(
        f"{path} has one column, {found[path][0].name!r}: its delimiter seems to be different from {Csv.delimiter!r}",
        hint=f"{way} {is_one} if it is one column",
    )


def _other_delimiter(format: Format, names: Sequence[str]) -> str:
    """The character that seems to separate the names in a header of one name; a delimiter set in the spec is
    trusted."""
    if format.name != "csv" or not format.csv.header or "delimiter" in format.options or len(names) != 1:
        return ""
    sign = max(_OTHER_DELIMITERS, key=names[0].count)
    return sign if sign in names[0] else ""


def _csv_columns(format: Format, opened: Callable[[], Any], path: str) -> tuple[Column, ...]:
    import csv

    from flowctl.connectors.files.text_parts import lenient

    given = format.csv
    if not given.header:
        if not format.declared:
            raise TableError(f"{path} has no header, so nothing names its columns", hint="Set format.schema")
        return format.declared
    with opened() as raw:
        # Bytes below the header that are no text are found when the rows are read.
        text = io.TextIOWrapper(raw, encoding=given.encoding, errors=lenient(), newline="")
        # Python's csv allows only one character as delimiter.
        lines = (line.replace(given.delimiter, _SEPARATOR) for line in without_mark(text))
        found = next(csv.reader(lines, delimiter=_SEPARATOR, quotechar=given.quote), [])
        names = [name.replace(_SEPARATOR, given.delimiter) for name in found]
    "".join(names).encode()  # a surrogate stands for a byte that is no text: UnicodeError
    _check_header(names, path)
    if _other_delimiter(format, names):  # reported when the other files are known
        return (Column(names[0], types.STRING),)
    known = {column.name: column for column in format.declared}
    unknown = sorted(set(known) - set(names))
    if unknown:
        lost = unknown[0]
        hint = f"Compare its header. If files may lack {lost}, give its type under `columns.types`, not `format.schema`"
        raise TableError(f"{path} has no column {lost}, which format.schema names", hint=hint)
    return tuple(known.get(name, Column(name, types.STRING)) for name in names)


def marked_encoding(start: bytes) -> str:
    """The encoding whose byte order mark a file begins with, other than UTF-8; empty if there is none. ``start`` has at
    least four bytes if the file has."""
    marks = {codecs.BOM_UTF32_LE: "utf-32", codecs.BOM_UTF32_BE: "utf-32"}
    marks |= {codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}  # UTF-32 begins with the mark of UTF-16
    return next((name for mark, name in marks.items() if start.startswith(mark)), "")


def without_mark(lines: Iterable[str]) -> Iterator[str]:
    """The lines of a file without its byte order mark: before a quote, it would make the quote part of the value."""
    for at, line in enumerate(lines):
        yield line if at else line.removeprefix("\ufeff")


def _arrow_columns(schema: pa.Schema, path: str) -> tuple[Column, ...]:
    return tuple(_arrow_column(field, path) for field in schema)


def _arrow_column(field: pa.Field, path: str) -> Column:
    kind = data_type(field.type)
    if kind is None:
        raise TableError(
            f"{path}: column {field.name} has type {field.type}, which cannot be carried exactly",
            hint="Write the files with another type, such as timestamp[us]",
        )
    return Column(field.name, kind, field.nullable, str(field.type))
