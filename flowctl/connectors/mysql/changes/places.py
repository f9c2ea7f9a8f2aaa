"""How far a reader of the log has come, in the form of the place where it began."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from flowctl.connectors.mysql.changes.events import Gtid
from flowctl.errors import StoppedByPolicy
from flowctl.model import binlog
from flowctl.model.position import BinlogPosition

_LONGEST = (1 << 32) - 1
_SECOND = 1_000_000
#: Bytes of a file for which :meth:`FileProgress.microsecond` grows by one: a whole file is within a second.
_STEP = 4295


class Progress(ABC):
    """``order`` is that of :attr:`place`. ``log`` identifies the file in which it was reached, as in
    :class:`BinlogPosition`."""

    order: int = 0
    log: str = ""

    @property
    def position(self) -> BinlogPosition:
        return BinlogPosition(self.place, self.log)

    @property
    @abstractmethod
    def place(self) -> str: ...

    @abstractmethod
    def order_of(self, gtid: Gtid) -> int:
        """Of the transaction that begins now: at least :attr:`order`, and less than it once the transaction has
        ended."""

    def microsecond(self, order: int) -> int:
        """Of the transaction with this order, in a log that has whole seconds. It follows from the place in the log
        alone, and grows until it starts again: at 1, because the moment of a snapshot is a whole second."""
        return 1 + order % (_SECOND - 1)

    @abstractmethod
    def ended(self, gtid: Gtid, server: int) -> None:
        """The transaction was delivered."""

    def moved(self, file: str, offset: int) -> None:
        """Everything before was delivered."""


@dataclass
class FileProgress(Progress):
    file: str
    offset: int

    @property
    def place(self) -> str:
        return f"{self.file}:{self.offset}"

    @property
    def order(self) -> int:  # type: ignore[override]
        return binlog.file_order(int(self.file.rpartition(".")[2]), self.offset)

    def order_of(self, gtid: Gtid) -> int:
        return self.order

    def microsecond(self, order: int) -> int:
        """Starts again in each file."""
        return 1 + (order & _LONGEST) // _STEP

    def ended(self, gtid: Gtid, server: int) -> None:
        """Its last event has moved the offset."""

    def moved(self, file: str, offset: int) -> None:
        self.file, self.offset = file, min(offset, _LONGEST)


@dataclass
class MariadbProgress(Progress):
    state: dict[int, tuple[int, int]]
    order: int = 0

    def __post_init__(self) -> None:
        self.order = sum(number for _, number in self.state.values())

    @property
    def place(self) -> str:
        return binlog.state_text(self.state)

    def order_of(self, gtid: Gtid) -> int:
        assert gtid.domain is not None
        before = self.state.get(gtid.domain, (0, 0))[1]
        if gtid.number <= before:
            raise StoppedByPolicy(
                f"the log is not in the order of its GTIDs: {gtid.number} of domain {gtid.domain} comes after {before}",
                hint="Set `position: file` in the stream, or gtid_strict_mode = ON on the server; then resnapshot it",
            )
        return self.order + gtid.number - before - 1

    def ended(self, gtid: Gtid, server: int) -> None:
        assert gtid.domain is not None
        self.order = self.order_of(gtid) + 1
        self.state[gtid.domain] = server, gtid.number


@dataclass
class MysqlProgress(Progress):
    gtids: dict[str, tuple[tuple[int, int], ...]]
    order: int = field(default=0)

    def __post_init__(self) -> None:
        self.order = binlog.count(self.gtids)

    @property
    def place(self) -> str:
        return binlog.set_text(self.gtids)

    def order_of(self, gtid: Gtid) -> int:
        if not gtid.source:
            raise StoppedByPolicy(
                "the log has a transaction without a GTID, and the stream's position is one of GTIDs",
                hint="Set gtid_mode = ON on the server, or `position: file` in the stream; then resnapshot it",
            )
        return self.order

    def ended(self, gtid: Gtid, server: int) -> None:
        self.gtids = dict(binlog.with_gtid(self.gtids, gtid.source, gtid.number))
        self.order += 1


def progress(after: str, *, is_mariadb: bool, log: str = "") -> Progress:
    found = _progress(after, is_mariadb=is_mariadb)
    found.log = log
    return found


def _progress(after: str, *, is_mariadb: bool) -> Progress:
    if place := binlog.file_of(after):
        return FileProgress(*place)
    return MariadbProgress(binlog.state_from_text(after)) if is_mariadb else MysqlProgress(binlog.set_from_text(after))
