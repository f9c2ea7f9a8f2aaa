"""What this environment's own executors run to read Parquet, ORC and Avro: whole files, by name and in the types of the
table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from flowctl.connectors.csv_text import Field
from flowctl.connectors.files.parts import Part, PartReader, Piece
from flowctl.connectors.refusal import PREFIX

#: Keys in files with days or moments in a legacy calendar.
_OTHER_CALENDAR = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_ROWS = 65_536
#: What a store is asked for beyond what is read: s3fs would fetch 50 MiB for a single column.
_BLOCK_BYTES = 4 << 20


@dataclass(frozen=True, kw_only=True)
class WholeReader(PartReader):
    """Of files in one ``format``: parquet, orc or avro."""

    format: str
    columns: tuple[Field, ...]

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.columns

    def pieces(self, part: Part, fields: tuple[Field, ...]) -> Iterator[Piece]:
        import fsspec

        system, base = fsspec.core.url_to_fs(self.url, use_listings_cache=False, **self.options)
        read, offset = _READERS[self.format], 0
        try:
            with system.open(f"{str(base).rstrip('/')}/{part.path}", "rb", block_size=_BLOCK_BYTES) as stream:
                for rows in read(stream, [field.name for field in fields]):
                    yield Piece(offset, self._typed(rows, fields))
                    offset += rows.num_rows
        except (pa.ArrowException, ValueError, EOFError) as error:
            reason = next(iter(str(error).splitlines()), type(error).__name__)
            raise RuntimeError(f"{PREFIX}{part.path} cannot be read as {self.format}: {reason}{_REPLACE}") from error

    def _typed(self, rows: pa.RecordBatch, fields: Sequence[Field]) -> pa.RecordBatch:
        arrays = [_cast(rows.column(field.name), field) for field in fields]
        return pa.RecordBatch.from_arrays(arrays, names=[field.name for field in fields])


def _cast(values: pa.Array, field: Field) -> pa.Array:
    try:
        return values.cast(field.type)
    except pa.ArrowInvalid as error:  # of ORC's timestamps, which have nanoseconds
        raise pa.ArrowInvalid(f"column {field.name} holds a value that is not exactly {field.type}") from error


def _parquet(stream: Any, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    import pyarrow.parquet as pq

    file = pq.ParquetFile(stream)
    if any(name in (file.metadata.metadata or {}) for name in _OTHER_CALENDAR):
        raise pa.ArrowInvalid("it has dates or timestamps of another calendar")
    yield from file.iter_batches(batch_size=_ROWS, columns=list(names), use_threads=False)


def _orc(stream: Any, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    from pyarrow import orc

    file = orc.ORCFile(stream)
    for stripe in range(file.nstripes):
        yield file.read_stripe(stripe, columns=list(names))


def _avro(stream: Any, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    from flowctl.connectors.files.avro_files import avro_batches

    yield from avro_batches(stream, names)


_READERS: Mapping[str, Callable[[Any, Sequence[str]], Iterator[pa.RecordBatch]]] = {
    "parquet": _parquet,
    "orc": _orc,
    "avro": _avro,
}
_REPLACE = " | Replace it, or leave it out of the pattern in `from`"
