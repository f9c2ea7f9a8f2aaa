"""Reads the log into a sink: whole transactions, in the order of their commits."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from flowctl.changes.capture import CaptureSink
from flowctl.changes.segment import Op
from flowctl.changes.shape import Shape
from flowctl.connectors.mysql.changes import events
from flowctl.connectors.mysql.changes.ddl import Meaning, meanings
from flowctl.connectors.mysql.changes.events import PREPARED, ROWS, STANDALONE, Event, Gtid, Kind, TableMap
from flowctl.connectors.mysql.changes.identity import OpenedFile, verdict
from flowctl.connectors.mysql.changes.places import Progress
from flowctl.connectors.mysql.changes.protocol import LogReader
from flowctl.connectors.mysql.changes.rows import RowSplitter
from flowctl.connectors.mysql.changes.shapes import altered
from flowctl.connectors.mysql.changes.wire import Wire
from flowctl.errors import StoppedByPolicy
from flowctl.model import binlog
from flowctl.model.position import BinlogPosition
from flowctl.model.table_info import ObjectName

#: Bytes of log after which a batch moves the position, however little it has: one without a change of this stream, or
#: with some that have not landed.
FOREIGN_BYTES, OWN_BYTES = 16 << 20, 512 << 20
#: Seconds after which it moves without that, so that the server may purge what was read.
IDLE_SECONDS = 300.0
#: Transactions of others after which to look at anything else.
_AT_ONCE = 1_000
_SECOND = 1_000_000
_WORDS = re.compile(r"[\w$]+")

_REFUSED = {
    Kind.PARTIAL_UPDATE: ("parts of JSON values", "Run SET GLOBAL binlog_row_value_options = ''"),
    Kind.PAYLOAD: ("compressed transactions", "Run SET GLOBAL binlog_transaction_compression = OFF"),
    Kind.TAGGED_GTID: ("a GTID with a tag", "Let sessions use gtid_next = AUTOMATIC without a tag"),
    Kind.START_ENCRYPTION: ("encrypted events", "Update the server, or turn encrypt_binlog off"),
    Kind.INCIDENT: ("a gap, which the server has noted (an incident event)", "Look at the server's error log"),
}
_OPS = {"emptied": Op.TRUNCATE, "replaced": Op.REPLACED, "altered": Op.ALTERED, "unkeyed": Op.UNKEYED}
_KNOWN = {*Kind, *events.PASSED_OVER}


@dataclass(frozen=True)
class Tables:
    """The tables of a stream, by database and name as the server compares them."""

    objects: Mapping[tuple[str, str], ObjectName]
    fold: Callable[[str], str]

    def get(self, database: str, name: str) -> ObjectName | None:
        return self.objects.get((self.fold(database), self.fold(name)))

    def named(self, database: str, name: str) -> list[ObjectName]:
        """``name`` empty: all of the database."""
        if name:
            found = self.get(database, name)
            return [found] if found is not None else []
        return [object for (its, _), object in self.objects.items() if its == self.fold(database)]

    def may_name(self, query: events.Query) -> bool:
        """Whether a statement that nobody understands may be about one of them."""
        databases = {database for database, _ in self.objects}
        words = {word.lower() for word in _WORDS.findall(query.text)}
        named = any({*_WORDS.findall(name.lower())} <= words for _, name in self.objects)
        return named or self.fold(query.database) in databases


@dataclass
class Reader:
    """``shape_of`` describes a table as its map tells it, ``shape_now`` as of now. ``idle``: seconds after which the
    position moves while there is no end to read to."""

    log: LogReader
    sink: CaptureSink
    tables: Tables
    progress: Progress
    shape_of: Callable[[TableMap, ObjectName], Shape]
    shape_now: Callable[[ObjectName], Shape]
    is_mariadb: bool
    idle: float = IDLE_SECONDS
    _file: str = ""
    _opened: OpenedFile | None = None
    _is_identified: bool = False
    _maps: dict[int, tuple[int, RowSplitter] | None] = field(default_factory=dict)
    _known: dict[tuple[int, bytes], tuple[int, RowSplitter]] = field(default_factory=dict)
    _numbers: dict[ObjectName, int] = field(default_factory=dict)
    _gtid: Gtid | None = None
    _server: int = 0
    _at: int = 0
    _has_begun: bool = False
    _is_sent: bool = False
    _foreign: int = 0
    _is_rotated: bool = False
    _passed: int = 0
    _moved_at: float = field(default_factory=time.monotonic)

    def read(self, until: Callable[[], BinlogPosition | None], stopping: threading.Event) -> bool:
        """Until everything before ``until()`` has been delivered (None: goes on), or ``stopping`` is set: what the sink
        has not landed then is dropped. False if the sink is full: continue at :attr:`progress` once it is not."""
        for event in self.log.events():
            if stopping.is_set():
                return True
            self._take(event)
            if self._gtid is not None:
                continue
            is_idle = event.kind in (Kind.HEARTBEAT, Kind.HEARTBEAT_2)
            if (end := until()) is not None and self.progress.order >= end.order:
                self._end()
                return True
            if is_idle or self._passed >= _AT_ONCE:
                self._passed = 0
                self.sink.pass_over(self._position())
                self._pass_on(is_endless=end is None)
            if self.sink.is_full:
                return False
        return True

    def _end(self) -> None:
        self.sink.pass_over(self._position())
        if self._is_rotated and self.sink.durable != self._position():
            self.sink.land_position()  # the server may purge the file of the last position before the next run
        else:
            self.sink.land()

    def _pass_on(self, *, is_endless: bool) -> None:
        """Moves the position along a log in which nothing concerns this stream."""
        is_far = self._foreign >= (FOREIGN_BYTES if self.sink.is_empty else OWN_BYTES)
        is_late = is_endless and time.monotonic() - self._moved_at >= self.idle
        if (is_far or is_late) and self.sink.durable != self._position():
            self.sink.land_position()
            self._foreign, self._moved_at, self._is_rotated = 0, time.monotonic(), False

    def _position(self) -> BinlogPosition:
        return self.progress.position

    def _take(self, event: Event) -> None:
        kind = event.kind
        self._foreign += event.size
        if kind in ROWS:
            self._rows(event)
        elif kind == Kind.TABLE_MAP:
            self._map(event)
        elif kind == Kind.MARIADB_GTID:
            gtid = events.mariadb_gtid(event.body)
            self._begin(event, gtid, has_begun=not gtid.flags & STANDALONE)
        elif kind in (Kind.GTID, Kind.ANONYMOUS_GTID):
            self._begin(event, events.mysql_gtid(event.body, is_anonymous=kind == Kind.ANONYMOUS_GTID), has_begun=False)
        elif kind in (Kind.QUERY, Kind.QUERY_COMPRESSED, Kind.LOAD_QUERY):
            self._query(event)
        elif kind == Kind.XA_PREPARE:
            if self._is_sent and events.is_prepared(event.body):  # only here, MySQL tells it from a commit in one phase
                self._refuse_prepared()
            self._commit(event)
        elif kind == Kind.XID:
            self._commit(event)
        elif kind == Kind.ROTATE:
            file, offset = events.rotation(event.body)
            if self._is_identified and file != self._file:
                self.progress.log = ""  # until the file is open
            self._is_rotated = self._is_rotated or bool(self._file and file != self._file)
            self._file = file
            self._maps.clear()
            self.progress.moved(file, offset)
            return
        elif kind == Kind.FORMAT:
            self._abandon()
            self._opened = OpenedFile.of(event, self._file)
            self._identify(None)
        elif kind == Kind.GTID_LIST and not self._is_identified:
            self._identify(events.gtid_list(event.body))
        elif kind in _REFUSED:
            self._refuse(*_REFUSED[Kind(kind)])
        elif kind not in _KNOWN and not event.is_ignorable:
            self._refuse(
                f"an event of the kind {kind}, which may change rows", "Update flowctl, if a newer one reads it"
            )
        if self._gtid is None and event.end and self._file:
            self.progress.moved(self._file, event.end)

    def _identify(self, before: binlog.GtidState | None) -> None:
        """What follows is behind the position only if the log is the one in which it was reached."""
        here, known, place = self._opened, self.progress.log, self.progress.place
        assert here is not None
        if known and not self._is_identified:
            then = OpenedFile.from_text(known)
            found = verdict(then, here, place, before, is_mariadb=self.is_mariadb)
            if found == "another":
                raise self.log.lost(
                    f"{place} was in {then.described}, and is now in {here.described}: the log was reset (RESET MASTER)"
                    ", or is another one"
                )
            if found == "unclear":
                return
        self.progress.log, self._is_identified = str(here), True

    def _begin(self, event: Event, gtid: Gtid, *, has_begun: bool) -> None:
        self._abandon()
        self._gtid, self._server, self._has_begun, self._is_sent = gtid, event.server, has_begun, False
        order = self.progress.order_of(gtid)
        self._at = gtid.at or event.at * _SECOND + self.progress.microsecond(order)

    def _abandon(self) -> None:
        """A server that was killed while it wrote a transaction into its log leaves it there without an end, and has
        rolled it back."""
        if self._gtid is not None and self._is_sent:
            self.sink.abandon()
        self._gtid, self._is_sent = None, False

    def _commit(self, event: Event) -> None:
        gtid = self._gtid
        if gtid is None:
            return
        self._gtid = None
        self.progress.ended(gtid, self._server)
        self._passed += 1
        if event.end and self._file:
            self.progress.moved(self._file, event.end)
        if self._is_sent:
            self._foreign, self._moved_at = 0, time.monotonic()
            self.sink.commit(self._position())

    def _map(self, event: Event) -> None:
        id, database, name = events.mapped_table(event.body)
        object = self.tables.get(database, name)
        if object is None:
            self._maps[id] = None
            return
        known = id, bytes(event.body)
        if known not in self._known:
            shape = self.shape_of(events.table_map(event.body, is_mariadb=self.is_mariadb), object)
            splitter = RowSplitter.of([Wire.from_text(text) for text in shape.private])
            self._known[known] = self.sink.shape(shape), splitter
        self._maps[id] = self._known[known]
        self._numbers[object] = self._known[known][0]

    def _rows(self, event: Event) -> None:
        table = events.rows_table(event.body)
        found = self._maps.get(table)
        if found is None:
            return
        number, splitter = found
        rows = events.rows(event.kind, event.body)
        if not rows.is_whole or rows.columns != len(splitter.sizes):
            self._refuse(
                "rows without some of their columns (binlog_row_image)", "Set binlog_row_image = FULL in all sessions"
            )
        assert self._gtid is not None
        if self._gtid.flags & PREPARED:
            self._refuse_prepared()
        self._send_begin()
        for row in splitter.split(bytes(rows.rows), 2 if rows.op == Op.UPDATE else 1):
            self.sink.add(number, rows.op, row)

    def _send_begin(self) -> None:
        if not self._is_sent:
            assert self._gtid is not None
            self.sink.begin(self.progress.order_of(self._gtid), self._at, self._gtid.number)
            self._is_sent = True

    def _query(self, event: Event) -> None:
        query = events.query(event.kind, event.body)
        is_end = not self._has_begun
        for meaning in self._meanings(query):
            if meaning.what == "begin":
                self._has_begun, is_end = True, False
            elif meaning.what == "end":
                is_end = True
            else:
                self._apply(meaning, query)
        if is_end:
            self._commit(event)

    def _meanings(self, query: events.Query) -> list[Meaning]:
        if self._gtid is not None and self._gtid.has_no_effect:
            return []
        try:
            return meanings(query)
        except (ValueError, IndexError):
            return [Meaning("unclear")]

    def _apply(self, meaning: Meaning, query: events.Query) -> None:
        if self._is_unlogged(meaning, query):
            self._refuse(
                f"a statement in the database {query.database or '(none)'} without the rows that it has changed",
                "Set binlog_format = ROW in all sessions",
            )
        op = _OPS.get(meaning.what)
        if op is None or self._gtid is None:
            return
        for database, name in meaning.tables:
            for object in self.tables.named(database, name):
                if op == Op.ALTERED:
                    number = self.sink.shape(altered(self.shape_now(object), meaning))
                elif object in self._numbers:
                    number = self._numbers[object]
                else:
                    number = self._numbers[object] = self.sink.shape(self.shape_now(object))
                self._send_begin()
                self.sink.add(number, op, b"")

    def _is_unlogged(self, meaning: Meaning, query: events.Query) -> bool:
        """Whether rows of the stream's tables may have changed. A statement does not name all tables that it changes:
        views, triggers and functions of any database may change others."""
        if meaning.what == "unclear":
            return self.tables.may_name(query)
        is_named = any(self.tables.named(*table) for table in meaning.tables)
        return meaning.what == "unlogged" and (is_named or not meaning.tables)

    def _refuse_prepared(self) -> None:
        """Its end, which may be a rollback, comes without its rows: a table is read again once that has come."""
        self._refuse(
            "rows of a prepared XA transaction",
            "Leave these tables out of XA transactions, and end those that XA RECOVER lists",
        )

    def _refuse(self, what: str, hint: str) -> None:
        raise StoppedByPolicy(
            f"behind {self.progress.place or 'its beginning'} the log has {what}",
            hint=f"{hint}; then run `flowctl state resnapshot` for the stream {self.log.stream}",
        )
