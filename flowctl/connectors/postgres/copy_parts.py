"""What executors run to read one part: ``COPY … TO STDOUT``, parsed by pyarrow with the declared types.

PostgreSQL's CSV tells null (nothing) from the empty string (``""``), and its texts are what Arrow's parsers take:
they read the years 1 to 9999 and refuse infinity, BC, NaN in a decimal and digits that do not fit. So values need no
detour through numbers; only bytes (hex) and arrays (JSON) are rebuilt here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from flowctl.connectors.postgres.silence import guard_of, unguarded
from flowctl.connectors.sql import timeouts

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa

#: In which text a column travels: the type's own, hexadecimal digits, or a JSON array of texts.
Form = Literal["plain", "hex", "json"]
#: Reads the parts whose numbers it is given.
PartReader = Callable[[Iterator["pa.RecordBatch"]], Iterator["pa.RecordBatch"]]


@dataclass(frozen=True)
class Field:
    """One column to come. ``refusal`` is raised for a value that is not exactly of ``type``."""

    name: str
    type: pa.DataType
    form: Form
    refusal: str


def part_reader(
    conninfo: str,
    init_statement: str,
    queries: Sequence[str],
    fields: Sequence[Field],
    own_texts: Sequence[str],
    opened: psycopg.Connection[Any] | None = None,
) -> PartReader:
    """The function for `mapInArrow` over the numbers of the ``queries``. Errors are ``RuntimeError`` with a SQLSTATE or
    a refusal, without values; one that holds any of ``own_texts`` says so in full.

    Executors have pyspark, psycopg and pyarrow but perhaps no flowctl: it is pickled by value because it is made here,
    and so must use nothing of this module. The credentials in ``conninfo`` travel inside it; no plan and no option
    shows them. ``opened`` is for this process, which has connected and joined the snapshot by itself."""
    columns = [(field.name, field.type, field.form, field.refusal) for field in fields]
    own, block_bytes, wait_milliseconds = tuple(own_texts), 1 << 20, 1000
    silent = f"SQLSTATE 08006: PostgreSQL has sent nothing for {timeouts.EXECUTOR_SILENCE:.0f} seconds"
    guard = guard_of(timeouts.EXECUTOR_SILENCE) if opened is None else unguarded()

    def read(numbers: Iterator[Any]) -> Iterator[Any]:
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from rows(queries[number])

    def rows(query: str) -> Iterator[Any]:
        from contextlib import closing, nullcontext

        import psycopg

        statement = f"COPY ({query}) TO STDOUT (FORMAT csv, ENCODING 'UTF8')"
        was_cut = never
        try:
            # Nothing to commit or roll back.
            with nullcontext(opened) if opened is not None else closing(psycopg.connect(conninfo)) as connection:
                hear, was_cut = guard(connection)
                if init_statement:
                    connection.execute(init_statement)
                with connection.cursor().copy(statement.encode(connection.info.encoding)):
                    for block in blocks(connection.pgconn, connection.info.encoding, hear):
                        hear(False)
                        yield from parsed(block)
                        hear(True)
        except psycopg.Error as error:
            # The driver's own text may hold values.
            raise RuntimeError(silent if was_cut() else told(error)) from None
        finally:
            was_cut()

    def never() -> bool:
        return False

    def blocks(pgconn: Any, encoding: str, hear: Any) -> Iterator[bytearray]:
        """Whole rows, about a MiB at a time. PostgreSQL sends a message a row; psycopg's own loop around each of them
        costs more than parsing it. While nothing is there, other threads of this process may run."""
        import select

        from psycopg.errors import error_from_result
        from psycopg.pq import ExecStatus

        readable = select.poll()
        readable.register(pgconn.socket, select.POLLIN)
        block = bytearray()
        while True:
            size, row = pgconn.get_copy_data(1)
            if size > 0:
                block += row
            elif size == 0:
                if len(block) >= block_bytes:
                    yield block
                    block = bytearray()
                if readable.poll(wait_milliseconds):
                    hear(True)
                pgconn.consume_input()
            else:
                break
        for result in list(iter(pgconn.get_result, None)):  # all of them, or psycopg would log what it finds left
            if result.status != ExecStatus.COMMAND_OK:
                raise error_from_result(result, encoding)
        if block:
            yield block

    def parsed(block: bytearray) -> Iterator[Any]:
        import re

        import pyarrow as pa
        from pyarrow import csv

        names = [str(at) for at in range(len(columns))]
        if block.startswith(b"\xef\xbb\xbf"):
            block = bytearray(b"\xef\xbb\xbf") + block  # the first would be taken for a file's byte order mark
        try:
            table = csv.read_csv(
                pa.py_buffer(block),
                csv.ReadOptions(column_names=names, use_threads=False, block_size=len(block) + 1),
                csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
                csv.ConvertOptions(
                    column_types={
                        at: kind if form == "plain" else pa.string()
                        for at, (_, kind, form, _) in zip(names, columns, strict=True)
                    },
                    null_values=[""],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                    true_values=["t"],
                    false_values=["f"],
                ),
            )
        except pa.ArrowInvalid as error:
            found = re.search(r"CSV column #(\d+):", str(error))
            why = columns[int(found[1])][3] if found else "what PostgreSQL sent is not the CSV that was asked for"
            raise RuntimeError(why) from None  # Arrow's text holds the value
        for batch in table.to_batches():
            arrays = [rebuilt(values, *column[1:]) for values, column in zip(batch.columns, columns, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, names=[column[0] for column in columns])

    def rebuilt(values: Any, kind: Any, form: Form, refusal: str) -> Any:
        if form == "plain":
            return values
        return unhexed(values) if form == "hex" else listed(values, kind, refusal)

    def unhexed(digits: Any) -> Any:
        """Two digits a byte, so the offsets of the bytes are half of those of the digits."""
        import binascii

        import pyarrow as pa
        import pyarrow.compute as pc

        validity, offsets, data = digits.buffers()
        ends = pa.Array.from_buffers(pa.int32(), len(digits) + 1, [None, offsets])
        raw = binascii.unhexlify(memoryview(data)[: ends[-1].as_py()]) if data is not None else b""
        halves = pc.shift_right(ends, pa.scalar(1, pa.int32())).buffers()[1]  # a plain 1 would make them int64
        return pa.Array.from_buffers(pa.binary(), len(digits), [validity, halves, pa.py_buffer(raw)])

    def listed(texts: Any, kind: Any, refusal: str) -> Any:
        """One-dimensional arrays only: the elements of a nested one are no texts."""
        import json

        import pyarrow as pa

        rows = json.loads(f"[{','.join('null' if text is None else text for text in texts.to_pylist())}]")
        try:
            if kind.value_type == pa.binary():
                rows = [row and [each and bytes.fromhex(each[2:]) for each in row] for row in rows]  # after \x
                return pa.array(rows, kind)
            return pa.array(rows, pa.list_(pa.string())).cast(kind)
        except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError):
            raise RuntimeError(refusal) from None

    def told(error: Any) -> str:
        import re

        state, message = error.sqlstate, error.diag.message_primary or str(error)
        if state is None:
            return f"SQLSTATE 08006: {message}"  # the connection was lost or never made
        if state[:2] in ("22", "23", "38", "39", "P0", "XX") and not any(text in message for text in own):
            message = re.sub(r'".*"', "…", message, flags=re.DOTALL)  # which may be a value
        return f"SQLSTATE {state}: ERROR: {message}"

    return read
