"""What the shared code needs of a table: one opened version of it, its files, and the rows in them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from flowctl.errors import StateConflict, TableError
from flowctl.model.table_info import Column

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq
    from pyroaring import BitMap64

    from flowctl.connectors.lake.conditions import Condition
    from flowctl.connectors.lake.record import Record
    from flowctl.connectors.lake.row_search import Search


class Unreadable(TableError):
    """This process cannot read a file exactly; Spark may."""

    def __init__(self, what: str) -> None:
        super().__init__(f"flowctl cannot read the table's rows exactly: {what}", hint="Run with spark.url local[*]")


class SearchedFile(Protocol):
    """A data file, as its table has it."""

    @property
    def partition_values(self) -> Mapping[str, Any]:
        """Of columns that the file does not have, by name."""

    def hidden(self) -> BitMap64:
        """The numbers of the rows that are deleted."""


class RowReader(Protocol):
    """One open data file. Columns are read in the table's types; a column that the file does not have is null."""

    @property
    def parquet(self) -> pq.ParquetFile: ...

    def has(self, column: Column) -> bool: ...

    def require_readable(self, columns: Sequence[Column]) -> None:
        """Raises if the file's values of ``columns`` cannot be read exactly."""

    def batches(self, columns: Sequence[Column], rows: int, group: int | None = None) -> Iterator[pa.RecordBatch]:
        """``columns`` in their order, up to ``rows`` rows at a time."""


class OpenFile(Protocol):
    """Opens a data file. ``metadata``: its footer, if it was read before."""

    def __call__(self, file: Any, metadata: pq.FileMetaData | None = None) -> AbstractContextManager[RowReader]: ...


@dataclass(frozen=True)
class Removal:
    """Files as their format describes them: ``removed`` are those to remove, ``kept`` those that keep their other
    rows."""

    removed: tuple[Any, ...] = ()
    kept: tuple[Any, ...] = ()


class LakeTable(Protocol):
    """One version of a table: all of it describes ``version``, whatever has been committed since. A commit on top of it
    gets the version after it."""

    @property
    def url(self) -> str: ...

    @property
    def version(self) -> int: ...

    @property
    def identity(self) -> str: ...

    @property
    def columns(self) -> tuple[Column, ...]: ...

    @property
    def files(self) -> tuple[Any, ...]:
        """Its data files, as the format describes them."""

    @property
    def is_empty(self) -> bool:
        """Whether there are no rows to compare with."""

    def newest(self, app: str) -> Record | None:
        """The record of the newest sequence number of ``app``."""

    def may_match(self, condition: Condition, file: Any) -> bool:
        """Whether a row of ``file`` may meet the condition, according to the file's statistics."""

    def search(self, columns: tuple[Column, ...], files: Sequence[Any]) -> Search:
        """A search in ``files`` of the table, which gets ``columns``."""

    def remove_rows(self, search: Search, files: Sequence[Any], gone: Mapping[int, BitMap64]) -> Removal:
        """Removes the rows in ``gone``, which ``search`` has found, from ``files``."""


def find_standing(place: str, newest: Record | None, record: Record) -> Record | None:
    """The commit of exactly the intent of ``record``, given the ``newest`` of its application; None while its number is
    free. :class:`StateConflict` if the number belongs to another intent, or was given up (a void matches only another
    void)."""
    wanted = record.commit
    if newest is None or newest.seq < wanted.seq:
        return None
    there = newest.commit
    if there.name != wanted.name:
        raise StateConflict(
            f"{place} has number {there.seq} of intent {there.intent_id or 'unknown'}, "
            f"not number {wanted.seq} of intent {wanted.intent_id}",
            hint="Look at `flowctl state show`, then plan again: another run wrote this table",
        )
    if there.void and not wanted.void:
        raise StateConflict(
            f"number {wanted.seq} of {wanted.table} was given up", hint="Plan again: the next number is free"
        )
    return newest
