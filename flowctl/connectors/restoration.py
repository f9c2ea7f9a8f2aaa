"""Bringing a table back to the content of an earlier commit: the contract of targets that keep earlier versions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

from flowctl.model.commit import Commit
from flowctl.model.table_info import ObjectName, TableInfo


@dataclass(frozen=True)
class VersionChange:
    """A table, by its URL, whose next version has the content of ``version``; ``newest`` is its version until then.
    ``rows`` are those of the newest version and of ``version``, each None if their statistics do not count them."""

    place: str
    newest: int
    version: int
    rows: tuple[int | None, int | None] = (None, None)


@dataclass(frozen=True)
class Restoration:
    """What :meth:`Restorable.restore` would do. ``commit`` is the target's newest commit afterwards, ``before`` and
    ``after`` describe the table. ``table`` is the change of the table itself, None if it has been restored already;
    ``sidecars`` are those of the sidecars that belong to its content. ``undone`` are the later sequence numbers of this
    flow, in ascending order, ``others`` is the number of later commits of others that have changed rows. ``origins``
    are the commits of the content, newest first: that of the number, and, if it was a restoration, what that restored.
    ``at`` is when the content was committed, in milliseconds since 1970; None: not recorded."""

    commit: Commit
    object: ObjectName
    before: TableInfo
    after: TableInfo
    origins: tuple[Commit, ...]
    table: VersionChange | None
    sidecars: tuple[VersionChange, ...] = ()
    undone: tuple[int, ...] = ()
    others: int = 0
    at: int | None = None

    @property
    def changes(self) -> tuple[VersionChange, ...]:
        """In the order in which they are committed."""
        return (*((self.table,) if self.table else ()), *self.sidecars)


class Restorable(ABC):
    """A target that keeps earlier versions of its tables."""

    @abstractmethod
    def find_restoration(self, record: Commit, object: ObjectName, seq: int) -> Restoration:
        """How the table gets the content of sequence number ``seq`` back. ``record`` has the next sequence number, and
        no position. :class:`StoppedByPolicy` if that is not possible. Writes nothing."""

    @abstractmethod
    def restore(self, restoration: Restoration, before_commit: Callable[[], None]) -> None:
        """Commits each of the changes as the version after the one that was looked at; :class:`WriteConflict` if
        another writer has committed since. ``before_commit`` is called before each and may raise. If it dies in
        between, the next :meth:`find_restoration` finds the changes that are left."""
