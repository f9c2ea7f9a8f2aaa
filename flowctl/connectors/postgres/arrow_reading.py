"""Frames of a held snapshot without Java: one ``COPY`` per part, run and parsed by Python on the executors.

The frame arrives in its final types, so it holds no expressions that an engine might lack. It is a `mapInArrow` over
the numbers of the parts and not a Python data source: Sail 0.7.2 hands a data source's batches on without letting go of
Python's lock, and stands still for good when whoever takes them needs Python too (tested: a slow `mapInArrow`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, assert_never

from flowctl.connectors.arrow import arrow_schema, arrow_type
from flowctl.connectors.postgres.client import Client
from flowctl.connectors.postgres.columns import Transfer, texts_of
from flowctl.connectors.postgres.copy_parts import Field, Form, PartReader, part_reader
from flowctl.connectors.postgres.parts import Parts, nth
from flowctl.connectors.postgres.snapshot import SNAPSHOT_LOST, HeldSnapshot
from flowctl.connectors.refusal import PREFIX, refusal
from flowctl.engine.session import most_at_once
from flowctl.model import types
from flowctl.model.types import Array, DataType, Decimal, Scalar, Struct
from flowctl.sql.dialects import schema_ddl

if TYPE_CHECKING:
    import psycopg
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession


def few_rows(connection: psycopg.Connection[Any], parts: Parts, most_bytes: int) -> pa.Table | None:
    """The same, read by this process over ``connection``, which has joined the snapshot; None as soon as it is more
    than ``most_bytes``."""
    import pyarrow as pa

    schema, size, found = arrow_schema([one.column for one in parts.transfers]), 0, []
    for batch in read_here(connection, parts):
        size += batch.nbytes
        if size > most_bytes:
            return None
        found.append(batch)
    return pa.Table.from_batches(found, schema)


def read_here(connection: psycopg.Connection[Any], parts: Parts) -> Iterator[pa.RecordBatch]:
    """All parts, one after the other."""
    import pyarrow as pa

    queries = list(_queries(parts))
    numbers = pa.record_batch([pa.array(range(len(queries)))], names=["number"])
    return _reader(parts, "", "", queries, connection)(iter([numbers]))


def arrow_frame(spark: SparkSession, client: Client, held: HeldSnapshot, parts: Parts) -> DataFrame:
    queries = list(_queries(parts))
    columns = [one.column for one in parts.transfers]
    numbers = spark.range(0, len(queries), 1, min(len(queries), most_at_once()))
    return numbers.mapInArrow(_reader(parts, client.conninfo(), held.join_statement(), queries), schema_ddl(columns))


def _reader(
    parts: Parts,
    conninfo: str,
    init_statement: str,
    queries: Sequence[str],
    opened: psycopg.Connection[Any] | None = None,
) -> PartReader:
    own_texts = (PREFIX, SNAPSHOT_LOST)
    fields = [_field(one) for one in parts.transfers]
    return part_reader(conninfo, init_statement, queries, fields, own_texts, opened)


def _queries(parts: Parts) -> Iterator[str]:
    selected = parts.select([_outgoing(one.value, _form(one.column.type)) for one in parts.transfers])
    names = ", ".join(nth(at) for at, _ in enumerate(parts.transfers))
    for predicate in parts.predicates:
        yield f"SELECT {names} FROM ({selected}) AS source WHERE {predicate}"


def _field(one: Transfer) -> Field:
    kind = one.column.type
    return Field(one.column.name, arrow_type(kind), _form(kind), refusal(one.column.name, one.native, kind))


def _form(kind: DataType) -> Form:
    match kind:
        case types.BINARY:
            return "hex"
        case Array():
            return "json"
        case Scalar() | Decimal() | Struct():
            return "plain"
        case _:
            assert_never(kind)


def _outgoing(value: str, form: Form) -> str:
    match form:
        case "plain":
            return value
        case "hex":
            return f"encode({value}, 'hex')"
        case "json":
            return texts_of(value)
        case _:
            assert_never(form)
