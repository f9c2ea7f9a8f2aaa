"""Frames of a held snapshot as a Python data source: what executors without Java read, one ``COPY`` per part.

The frame arrives in its final types, so it holds no expressions that an engine might lack.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, assert_never
from uuid import uuid4

from flowctl.connectors.arrow import arrow_type
from flowctl.connectors.postgres.client import Client
from flowctl.connectors.postgres.columns import Transfer, quoted, texts_of
from flowctl.connectors.postgres.copy_parts import Field, Form, copying_source
from flowctl.connectors.postgres.parts import Parts
from flowctl.connectors.postgres.snapshot import SNAPSHOT_LOST, HeldSnapshot
from flowctl.connectors.refusal import PREFIX, refusal
from flowctl.model import types
from flowctl.model.types import Array, DataType, Decimal, Scalar, Struct, spark_ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def arrow_frame(spark: SparkSession, client: Client, held: HeldSnapshot, parts: Parts) -> DataFrame:
    """Registered under a name of its own: a frame looks its source up by name whenever it runs."""
    columns = [one.column for one in parts.transfers]
    schema = ", ".join(f"`{column.name.replace('`', '``')}` {spark_ddl(column.type)}" for column in columns)
    name = f"flowctl_postgres_{uuid4().hex}"
    source = copying_source(
        name=name,
        schema=schema,
        conninfo=client.conninfo(),
        init_statement=held.init_statement(),
        queries=list(_queries(parts)),
        fields=[_field(one) for one in parts.transfers],
        own_texts=(PREFIX, SNAPSHOT_LOST),
    )
    spark.dataSource.register(source)
    return spark.read.format(name).schema(schema).load()


def _queries(parts: Parts) -> Iterator[str]:
    selected = parts.select([_outgoing(one.value, _form(one.column.type)) for one in parts.transfers])
    names = ", ".join(quoted(one.column.name) for one in parts.transfers)
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
