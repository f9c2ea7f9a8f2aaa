"""What executors run: ``COPY`` of parts of a read, and of parts of a batch into a staging table.

PostgreSQL's CSV distinguishes null (nothing) from the empty string (``""``), and keeps quotes, backslashes and newlines
unchanged. Its texts are what Arrow's parsers accept: they read the years 1 to 9999 and refuse infinity, BC, NaN in a
decimal and digits that do not fit. So values need no conversion to numbers; only bytes (hex) and arrays (JSON) are
rebuilt.

Errors are ``RuntimeError`` with a SQLSTATE or a refusal, without values. Executors have pyspark, psycopg and pyarrow
but perhaps no flowctl: callers register this module to be pickled by value, so it may use only those packages, the
standard library and constants. Credentials travel inside the functions: no plan and no option shows them. ``opened`` is
a connection of this process to use instead; its owner watches it.

psycopg is imported by the functions that use it. A module in a function's globals is unpickled with it, and cloudpickle
adds the submodules that its code may use: two threads of one process (Sail's workers) that import ``psycopg`` and
``psycopg.copy`` at the same moment find one of them half initialized.
"""

from __future__ import annotations

import binascii
import json
import os
import re
import select
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv

from flowctl.connectors.postgres.modifiers import CONSTRAINT
from flowctl.connectors.postgres.snapshot import SNAPSHOT_LOST
from flowctl.connectors.refusal import PREFIX

if TYPE_CHECKING:
    import psycopg


@dataclass(frozen=True)
class Field:
    """One column to read. ``refusal`` is raised for a value that is not exactly of ``type``. Bytes arrive as
    hexadecimal digits, arrays as JSON arrays of texts, all others as their own text."""

    name: str
    type: pa.DataType
    refusal: str

    @property
    def arrives_as(self) -> pa.DataType:
        return pa.string() if pa.types.is_binary(self.type) or pa.types.is_list(self.type) else self.type


@dataclass(frozen=True)
class PartReader:
    """Reads parts, each the result of one of the ``queries``, on connections that run ``init_statement`` first.
    ``silence`` is how long, in seconds, the server may send nothing."""

    conninfo: str = field(repr=False)
    init_statement: str
    queries: Sequence[str]
    fields: Sequence[Field]
    silence: float
    opened: psycopg.Connection[Any] | None = None

    def read(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The function for `mapInArrow` over the numbers of the queries."""
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield from self._rows(self.queries[number])

    def _rows(self, query: str) -> Iterator[pa.RecordBatch]:
        import psycopg

        statement = f"COPY ({query}) TO STDOUT (FORMAT csv, ENCODING 'UTF8')"
        guard = _Guard(self.silence)
        try:
            # Nothing to commit or roll back.
            with nullcontext(self.opened) if self.opened else closing(psycopg.connect(self.conninfo)) as connection:
                if not self.opened:
                    guard.watch(connection)
                if self.init_statement:
                    connection.execute(self.init_statement)
                with connection.cursor().copy(statement.encode(connection.info.encoding)):
                    for block in _blocks(connection.pgconn, connection.info.encoding, guard):
                        guard.pause()
                        yield from self._parsed(block)
                        guard.hear()
        except psycopg.Error as error:
            raise RuntimeError(_message(error, guard, "sent")) from None  # the driver's own text may hold values
        finally:
            guard.end()

    def _parsed(self, block: bytearray) -> Iterator[pa.RecordBatch]:
        names = [str(at) for at in range(len(self.fields))]
        if block.startswith(_BOM):
            block = bytearray(_BOM) + block  # the first would be taken for a file's byte order mark
        try:
            table = csv.read_csv(
                pa.py_buffer(block),
                csv.ReadOptions(column_names=names, use_threads=False, block_size=len(block) + 1),
                csv.ParseOptions(newlines_in_values=True, ignore_empty_lines=False),
                csv.ConvertOptions(
                    column_types={at: one.arrives_as for at, one in zip(names, self.fields, strict=True)},
                    null_values=[""],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                    true_values=["t"],
                    false_values=["f"],
                ),
            )
        except pa.ArrowInvalid as error:
            found = re.search(r"CSV column #(\d+):", str(error))
            why = self.fields[int(found[1])].refusal if found else "what PostgreSQL sent is not the CSV asked for"
            raise RuntimeError(why) from None  # Arrow's text holds the value
        for batch in table.to_batches():
            arrays = [_rebuilt(values, one) for values, one in zip(batch.columns, self.fields, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, names=[one.name for one in self.fields])


@dataclass(frozen=True)
class PartWriter:
    """Copies a part of a batch into the table ``stage`` (SQL name). ``typed`` are the names of its columns, in order,
    with their types as errors name them. ``silence`` is how long, in seconds, the server may accept nothing.

    Each call is a transaction of its own, whose id PostgreSQL stores with every row (``xmin``)."""

    conninfo: str = field(repr=False)
    stage: str
    typed: Sequence[tuple[str, str]]
    silence: float
    opened: psycopg.Connection[Any] | None = None

    def copy(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The function for `mapInArrow`; yields one row: the transaction, and the number of rows that it committed."""
        filled = (batch for batch in batches if batch.num_rows)
        first = next(filled, None)
        transaction, rows = self._copied(first, filled) if first is not None else (0, 0)
        yield pa.RecordBatch.from_pydict(
            {"transaction": pa.array([transaction], pa.int64()), "rows": pa.array([rows], pa.int64())}
        )

    def _copied(self, first: pa.RecordBatch, others: Iterator[pa.RecordBatch]) -> tuple[int, int]:
        import psycopg
        from psycopg import sql

        names = sql.SQL(", ").join([sql.Identifier(name) for name, _ in self.typed])
        statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv, ENCODING 'UTF8')").format(sql.SQL(self.stage), names)
        guard = _Guard(self.silence)
        try:
            with self.opened.transaction() if self.opened else psycopg.connect(self.conninfo) as scope:
                connection: Any = self.opened or scope
                if not self.opened:
                    guard.watch(connection)
                (transaction,) = connection.execute("SELECT txid_current() & 4294967295").fetchone()
                with connection.cursor().copy(statement) as stream:
                    stream.write(self._as_csv(first))
                    rows = first.num_rows
                    guard.pause()
                    for batch in others:
                        guard.hear()
                        stream.write(self._as_csv(batch))
                        rows += batch.num_rows
                        guard.pause()
                    guard.hear()
        except psycopg.Error as error:
            refused = "" if guard.was_cut else self._refused(error)
            raise RuntimeError(refused or _message(error, guard, "taken")) from None  # its own text holds the value
        finally:
            guard.end()
        return transaction, rows

    def _as_csv(self, batch: pa.RecordBatch) -> bytes:
        for (name, native), values in zip(self.typed, batch.columns, strict=True):
            if native == "uuid" and _is_rewritten(values):
                why = "a value of it is not exactly uuid: it would be written otherwise"
                raise RuntimeError(_refusal(name, why, "Change the value in the source, or the column to `text`"))
        sink = pa.BufferOutputStream()
        csv.write_csv(batch, sink, csv.WriteOptions(include_header=False))
        text: bytes = sink.getvalue().to_pybytes()
        if b"\0" in text:
            raise RuntimeError(_refusal(self._with_nul(batch), "PostgreSQL's text holds no NUL character"))
        return text

    def _with_nul(self, batch: pa.RecordBatch) -> str:
        named = zip((name for name, _ in self.typed), batch.columns, strict=True)
        texts = ((name, values) for name, values in named if pa.types.is_string(values.type))
        return next((name for name, values in texts if pc.any(pc.match_substring(values, "\0")).as_py()), "?")

    def _refused(self, error: psycopg.Error) -> str:
        """The refusal for the column whose value the server rejected; empty if the error names none."""
        context, constraint = error.diag.context or "", error.diag.constraint_name or ""
        if constraint.startswith(CONSTRAINT):
            name, native = self.typed[int(constraint.removeprefix(CONSTRAINT))]
            return _refusal(name, f"a value of it is not exactly {native}: it would be rounded, cut or padded")
        if domain := error.diag.datatype_name:
            of_domain = [name for name, native in self.typed if native.split(".")[-1].strip('"[]') == domain]
            if of_domain:
                return _refusal(of_domain[0], f"the domain {domain} does not take a value of it")
        for name, _ in self.typed:
            if error.sqlstate and (f", column {name}:" in context or context.endswith(f" {name}")):
                return _refusal(name, f"PostgreSQL refuses a value of it (SQLSTATE {error.sqlstate})")
        return ""


class _Guard:
    """Cuts a connection whose server has neither sent nor accepted anything for ``seconds``, such as a paused one:
    libpq itself, once connected, waits for ever."""

    def __init__(self, seconds: float) -> None:
        self.seconds, self.was_cut = seconds, False
        self._heard, self._ended = time.monotonic(), threading.Event()

    def watch(self, connection: psycopg.Connection[Any]) -> None:
        self.hear()
        threading.Thread(target=self._run, args=(connection,), name="flowctl-silence", daemon=True).start()

    def hear(self) -> None:
        self._heard = time.monotonic()

    def pause(self) -> None:
        """Stops the clock until the next :meth:`hear`."""
        self._heard = float("inf")

    def end(self) -> None:
        self._ended.set()

    def _run(self, connection: psycopg.Connection[Any]) -> None:
        while not self._ended.wait(min(1.0, self.seconds / 4)):
            if time.monotonic() - self._heard > self.seconds:
                self.was_cut = True
                with socket.socket(fileno=os.dup(connection.fileno())) as other:
                    other.shutdown(socket.SHUT_RDWR)
                return


def _blocks(pgconn: Any, encoding: str, guard: _Guard) -> Iterator[bytearray]:
    """Yields whole rows, about one MiB at a time. PostgreSQL sends one message per row; psycopg's own loop costs more
    per message than the parsing. While no data is available, other threads of this process may run."""
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
            if len(block) >= _BLOCK_BYTES:
                yield block
                block = bytearray()
            if readable.poll(_WAIT_MILLISECONDS):
                guard.hear()
            pgconn.consume_input()
        else:
            break
    for result in list(iter(pgconn.get_result, None)):  # fetch all, or psycopg logs the remaining ones
        if result.status != ExecStatus.COMMAND_OK:
            raise error_from_result(result, encoding)
    if block:
        yield block


def _rebuilt(values: Any, column: Field) -> Any:
    if pa.types.is_binary(column.type):
        return _unhexed(values)
    return _listed(values, column) if pa.types.is_list(column.type) else values


def _unhexed(digits: Any) -> Any:
    """Decodes hexadecimal digits: two per byte, so the offsets of the bytes are half of those of the digits."""
    validity, offsets, data = digits.buffers()
    ends = pa.Array.from_buffers(pa.int32(), len(digits) + 1, [None, offsets])
    raw = binascii.unhexlify(memoryview(data)[: ends[-1].as_py()]) if data is not None else b""
    halves = pc.shift_right(ends, pa.scalar(1, pa.int32())).buffers()[1]  # a plain 1 would make them int64
    return pa.Array.from_buffers(pa.binary(), len(digits), [validity, halves, pa.py_buffer(raw)])


def _listed(texts: Any, column: Field) -> Any:
    """One-dimensional arrays only: the elements of a nested one are not texts."""
    rows = json.loads(f"[{','.join('null' if text is None else text for text in texts.to_pylist())}]")
    try:
        if column.type.value_type == pa.binary():
            rows = [row and [each and bytes.fromhex(each[2:]) for each in row] for row in rows]  # after \x
            return pa.array(rows, column.type)
        return pa.array(rows, pa.list_(pa.string())).cast(column.type)
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError):
        raise RuntimeError(column.refusal) from None


def _message(error: psycopg.Error, guard: _Guard, done: str) -> str:
    if guard.was_cut:
        return f"SQLSTATE 08006: PostgreSQL has {done} nothing for {guard.seconds:.0f} seconds"
    state, message = error.sqlstate, error.diag.message_primary or str(error)
    if state is None:
        return f"SQLSTATE 08006: {message}"  # the connection was lost or never made
    return f"SQLSTATE {state}: ERROR: {without_values(state, message)}"


def without_values(state: str, message: str) -> str:
    """A server's message without what may be a value of a row. Other states quote names only, and some that belong to
    these quote encodings or a time zone. The server's language (``lc_messages``) determines the quotes."""
    is_named = state in ("22021", "22P05") or message.startswith('time zone "')
    if is_named or state[:2] not in ("22", "38", "39", "P0", "XX") or any(text in message for text in _OWN_TEXTS):
        return message
    told = _QUOTED.sub("…", message)
    if told != message or message.isascii() or state[:2] != "22":
        return told
    return _condition(state)  # of another language, which quotes otherwise


def _condition(state: str) -> str:
    from psycopg import errors

    try:
        return errors.lookup(state).__name__
    except KeyError:
        return f"SQLSTATE {state}"


def _is_rewritten(uuids: Any) -> bool:
    """Whether PostgreSQL writes one of these texts otherwise. It refuses itself what is no UUID."""
    if not (pa.types.is_string(uuids.type) or pa.types.is_large_string(uuids.type)):
        return False
    others = uuids.filter(pc.invert(pc.match_substring_regex(uuids, _OWN_UUID)))
    return bool(pc.any(pc.match_substring_regex(others, _UUID), min_count=0).as_py())


def _refusal(column: str, why: str, hint: str = "Fix the value, or leave such rows out with `where`") -> str:
    """``hint`` must end with text in backticks, as in :func:`flowctl.connectors.refusal.refusal`."""
    return f'{PREFIX}column "{column}": {why} | {hint}'


#: What PostgreSQL reads as a UUID, and how it writes one.
_UUID, _OWN_UUID = r"^(?i:\{?([0-9a-f]{4}-?){7}[0-9a-f]{4}\}?)$", r"^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$"
_BLOCK_BYTES = 1 << 20
_WAIT_MILLISECONDS = 1000
_BOM = b"\xef\xbb\xbf"
#: An apostrophe inside a word quotes nothing.
_QUOTED = re.compile(r"""".*"|(?<!\w)'.*'(?!\w)|[«»„“”「].*[«»“”」]""", re.DOTALL)
_OWN_TEXTS = (PREFIX, SNAPSHOT_LOST)
