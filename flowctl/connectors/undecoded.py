"""Rows that this process passes on as their source sends them, to a target of the same kind.

A source whose capabilities name a form opens an :class:`UndecodedSnapshot`: one moment of one relation, as a snapshot
is. A target that takes this form stages :class:`UndecodedRows` and commits them as any other batch. Nothing in between
looks at a value, so types that flowctl does not have are kept, and no engine starts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from flowctl.model.interval import Interval
from flowctl.model.table_info import Column

#: Opens one part of the rows: its bytes, in pieces of any size, complete in themselves.
Part = Callable[[], AbstractContextManager[Iterator[bytes]]]


@dataclass(frozen=True)
class SentColumn:
    """``source`` is the column as the source describes it, sent with its ``portable`` type; ``name`` is its name in the
    target."""

    source: Column
    name: str


@dataclass(frozen=True)
class Inside:
    """The rows as a query, for a target that is the same database: ``query`` is the source's SQL, ``moment`` the
    statement that a transaction starts with to see the same moment."""

    query: str
    moment: str


class UndecodedRows(ABC):
    """Rows with ``columns``, in this order. A target may request further columns of one text each: ``constants`` maps
    their names to it."""

    columns: tuple[SentColumn, ...]

    @abstractmethod
    def parts(self, constants: Mapping[str, str]) -> Sequence[Part]:
        """Parts for several connections; of all parts, exactly one has each row."""

    @abstractmethod
    def inside(self, constants: Mapping[str, str]) -> Inside: ...


class UndecodedSnapshot(ABC):
    """Readable while its context is open, which is until the commit."""

    @abstractmethod
    def is_empty(self, interval: Interval) -> bool:
        """Whether the interval has no rows."""

    @abstractmethod
    def rows(self, columns: Sequence[SentColumn], interval: Interval) -> UndecodedRows: ...
