"""Executors write a frame into a staging table: Arrow batches as CSV through COPY, exact or refused by name.

PostgreSQL's CSV tells null (nothing) from the empty string (``""``), and takes quotes, backslashes and newlines as they
are; texts are always quoted, so no row can be the two characters that end a COPY. Each attempt of a task copies in a
transaction of its own, whose number PostgreSQL keeps with every row (``xmin``): a task that is tried again copies its
rows a second time, and only the attempt that Spark counts is accepted. Spark's result is one report row for each part,
nothing else reaches the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flowctl.connectors.postgres.modifiers import CONSTRAINT
from flowctl.connectors.postgres.silence import guard_of, unguarded
from flowctl.connectors.refusal import PREFIX
from flowctl.connectors.sql import timeouts
from flowctl.engine.spark_types import named
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import Array, DataType, Struct

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa
    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

_REPORT = "transaction BIGINT, rows BIGINT"


@dataclass(frozen=True)
class Accepted:
    """One part of the frame: the transaction (32 bits, as in ``xmin``) of the attempt that counts, and how many rows it
    has copied and committed."""

    transaction: int
    rows: int


def copy_frame(
    frame: DataFrame, columns: Sequence[Column], conninfo: str, stage: str, natives: Mapping[str, str]
) -> list[Accepted]:
    """Copies ``frame`` into the table ``stage`` (SQL name); ``conninfo`` travels inside the function, so that no plan
    and no log shows the credentials in it. ``natives`` are types that the target has already, for errors."""
    copy = _copier(conninfo, stage, _named(columns, natives), PREFIX)
    return _accepted(report.asDict() for report in copyable(frame, columns).mapInArrow(copy, _REPORT).collect())


def copy_rows(
    rows: pa.Table,
    columns: Sequence[Column],
    connection: psycopg.Connection[Any],
    stage: str,
    natives: Mapping[str, str],
) -> list[Accepted]:
    """The same for rows of this process, as :func:`copyable` makes them, over ``connection`` (in autocommit mode):
    executors would first start Python."""
    copy = _copier("", stage, _named(columns, natives), PREFIX, opened=connection)
    return _accepted(report for batch in copy(iter(rows.to_batches())) for report in batch.to_pylist())


def _named(columns: Sequence[Column], natives: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(column.name, natives.get(column.name, "its type")) for column in columns]


def _accepted(reports: Iterable[Mapping[str, Any]]) -> list[Accepted]:
    return [Accepted(report["transaction"], report["rows"]) for report in reports if report["rows"]]


def is_copied_as_it_is(column: Column) -> bool:
    """Whether Arrow writes its values into CSV as PostgreSQL reads them."""
    return column.type != types.BINARY and not isinstance(column.type, Array | Struct)


def copyable(frame: DataFrame, columns: Sequence[Column]) -> DataFrame:
    """Types that Arrow writes into CSV as PostgreSQL reads them; the others as the text of a literal. Columns are known
    by their place: mapInArrow takes a dot in a name for a field of a struct."""

    def numbered(at: int, column: Column) -> SparkColumn:
        value = named(column.name).cast(types.spark_ddl(column.type))
        return _text(value, column.type).alias(f"c{at}")

    return frame.select(*[numbered(at, column) for at, column in enumerate(columns)])


def _text(value: SparkColumn, kind: DataType) -> SparkColumn:
    from pyspark.sql import functions as f

    match kind:
        case types.BINARY:
            return f.concat(f.lit("\\x"), f.hex(value))
        case Array(Array() | Struct()) | Struct():
            return f.to_json(value)
        case Array(item):
            elements = f.transform(value, lambda each: f.coalesce(_element(each, item), f.lit("NULL")))
            return f.concat(f.lit("{"), f.array_join(elements, ","), f.lit("}"))
        case _:
            return value


def _element(value: SparkColumn, kind: DataType) -> SparkColumn:
    """One element of an array literal, quoted; sessions run in UTC, so that is what a zoned timestamp's text is in."""
    from pyspark.sql import functions as f

    text = _text(value, kind).cast("string")
    if kind == types.TIMESTAMP:
        text = f.concat(text, f.lit("Z"))
    escaped = f.replace(f.replace(text, f.lit("\\"), f.lit("\\\\")), f.lit('"'), f.lit('\\"'))
    return f.concat(f.lit('"'), escaped, f.lit('"'))


def _copier(
    conninfo: str,
    stage: str,
    typed: Sequence[tuple[str, str]],
    prefix: str,
    most_silent: float = timeouts.EXECUTOR_SILENCE,
    opened: psycopg.Connection[Any] | None = None,
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    """The function that runs on executors, where there is psycopg and pyarrow but perhaps no flowctl: it is pickled
    by value because it is made here, and so must use nothing of this module."""
    names, exact = [name for name, _ in typed], CONSTRAINT
    guard = guard_of(most_silent) if opened is None else unguarded()
    silent = f"SQLSTATE 08006: PostgreSQL has taken nothing for {most_silent:.0f} seconds"

    def copy(batches: Iterator[Any]) -> Iterator[Any]:
        import psycopg
        import pyarrow as pa
        from psycopg import sql

        listed = sql.SQL(", ").join(map(sql.Identifier, names))
        statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv, ENCODING 'UTF8')").format(sql.SQL(stage), listed)
        filled = (batch for batch in batches if batch.num_rows)
        first = next(filled, None)
        transaction = rows = 0
        if first is not None:
            was_cut = never
            try:
                with opened.transaction() if opened is not None else psycopg.connect(conninfo) as scope:
                    connection: Any = opened if opened is not None else scope
                    hear, was_cut = guard(connection)
                    asked = connection.execute("SELECT txid_current() & 4294967295").fetchone()
                    transaction = asked[0] if asked else 0
                    with connection.cursor().copy(statement) as stream:
                        stream.write(as_csv(first))
                        rows += first.num_rows
                        hear(False)
                        for batch in filled:
                            hear(True)
                            stream.write(as_csv(batch))
                            rows += batch.num_rows
                            hear(False)
                        hear(True)
            except psycopg.Error as error:
                raise RuntimeError(silent if was_cut() else told(error)) from None  # its own text holds the value
            finally:
                was_cut()
        yield pa.RecordBatch.from_pydict(
            {"transaction": pa.array([transaction], pa.int64()), "rows": pa.array([rows], pa.int64())}
        )

    def never() -> bool:
        return False

    def as_csv(batch: Any) -> bytes:
        import pyarrow as pa
        import pyarrow.csv as csv

        sink = pa.BufferOutputStream()
        csv.write_csv(batch, sink, csv.WriteOptions(include_header=False))
        text: bytes = sink.getvalue().to_pybytes()
        if b"\0" in text:
            raise RuntimeError(refusal(with_nul(batch), "PostgreSQL's text holds no NUL character"))
        return text

    def with_nul(batch: Any) -> str:
        import pyarrow as pa
        import pyarrow.compute as pc

        texts = [(name, values) for name, values in zip(names, batch.columns) if pa.types.is_string(values.type)]  # noqa: B905
        found = [name for name, values in texts if pc.any(pc.match_substring(values, "\0")).as_py()]
        return found[0] if found else "?"

    def told(error: Any) -> str:
        context, constraint = error.diag.context or "", error.diag.constraint_name or ""
        if constraint.startswith(exact):
            name, native = typed[int(constraint.removeprefix(exact))]
            return refusal(name, f"a value of it is not exactly {native}: it would be rounded, cut or padded")
        if domain := error.diag.datatype_name:
            named = [name for name, native in typed if native.split(".")[-1].strip('"[]') == domain]
            if named:
                return refusal(named[0], f"the domain {domain} does not take a value of it")
        column = next((name for name in names if f", column {name}:" in context or context.endswith(f" {name}")), None)
        if error.sqlstate is None:  # the connection was lost or never made: libpq's text, which holds no row
            return str(error)
        if column is None:
            return f"SQLSTATE {error.sqlstate}: {error.diag.message_primary}"
        return refusal(column, f"PostgreSQL refuses a value of it (SQLSTATE {error.sqlstate})")

    def refusal(column: str, why: str) -> str:
        return f'{prefix}column "{column}": {why} | Fix the value, or leave such rows out with `where`'

    return copy
