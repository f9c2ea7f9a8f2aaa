"""Avro container files: blocks of values with the schema that they were written with."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from flowctl.connectors.avro import AvroSchema
from flowctl.connectors.written_fields import array_of
from flowctl.model.table_info import Column

if TYPE_CHECKING:
    import pyarrow as pa


def avro_columns(stream: Any) -> tuple[Column, ...]:
    """The columns that a file's schema has."""
    import fastavro

    schema = _schema(fastavro.block_reader(stream))
    return tuple(field.column(name) for name, field in schema.fields.items())


def avro_batches(stream: Any, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """The rows of a file, one batch for each of its blocks, with the columns ``names`` in the types of its schema.
    Raises ``ArrowInvalid`` for a value that these cannot hold, and ``ValueError`` for what is no Avro."""
    import fastavro
    import pyarrow as pa

    blocks: Any = fastavro.block_reader(stream)
    schema = _schema(blocks)
    for block in blocks:
        rows = schema.values(block.bytes_, block.num_records)
        arrays = [array_of([row[name] for row in rows], schema.fields[name]) for name in names]
        yield pa.RecordBatch.from_arrays(arrays, names=list(names))


def _schema(blocks: Any) -> AvroSchema:
    return AvroSchema(blocks.metadata["avro.schema"])
