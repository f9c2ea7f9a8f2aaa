"""Events of the binary log, as far as a change stream needs them. Source: MySQL's and MariaDB's protocol references."""

from __future__ import annotations

import struct
import uuid
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum

from flowctl.changes.segment import Op
from flowctl.errors import StoppedByPolicy

_HEADER = struct.Struct("<IBIIIH")
HEADER_BYTES = _HEADER.size
_CHECKSUM_BYTES = 4
_U16, _U32, _U64 = struct.Struct("<H"), struct.Struct("<I"), struct.Struct("<Q")

#: Of MariaDB's GTID events: the transaction is one statement without an end of its own; it is prepared.
STANDALONE, PREPARED = 1, 64
_GROUP_COMMIT, _HAS_XID = 2, 64 | 128
#: Of MariaDB's `binlog_alter_two_phase`: an ALTER begins, or is rolled back. Its end that counts has another one.
_NO_EFFECT = 2 | 8
#: Of the header: an event that a reader may pass over if it does not know its kind.
_IGNORABLE = 0x80
#: Of a query's variables: its flags, its `sql_mode`, and the two strict ones of these.
_FLAGS, _MODE, _STRICT = 0, 1, 1 << 21 | 1 << 22
#: What a query's text is behind, and that of LOAD DATA, whose file is described before it.
_QUERY_BYTES, _LOAD_BYTES = 13, 26


class Kind(IntEnum):
    QUERY = 2
    ROTATE = 4
    FORMAT = 15
    XID = 16
    LOAD_QUERY = 18
    TABLE_MAP = 19
    INCIDENT = 26
    HEARTBEAT = 27
    GTID = 33
    ANONYMOUS_GTID = 34
    XA_PREPARE = 38
    PARTIAL_UPDATE = 39
    PAYLOAD = 40
    HEARTBEAT_2 = 41
    TAGGED_GTID = 42
    MARIADB_GTID = 162
    GTID_LIST = 163
    START_ENCRYPTION = 164
    QUERY_COMPRESSED = 165


#: Kinds without a change: beginnings and ends of files, values for statements, the blocks of files that LOAD DATA reads
#: (which count once it is executed), comments, and the positions and members of others.
PASSED_OVER = {1, 3, 5, 7, 9, 11, 13, 14, 17, 28, 29, 35, 36, 37, 160, 161}

#: Row events: operation, whether they have a field for more data, whether they are compressed.
ROWS = {
    23: (Op.INSERT, False, False), 24: (Op.UPDATE, False, False), 25: (Op.DELETE, False, False),
    30: (Op.INSERT, True, False), 31: (Op.UPDATE, True, False), 32: (Op.DELETE, True, False),
    166: (Op.INSERT, False, True), 167: (Op.UPDATE, False, True), 168: (Op.DELETE, False, True),
    169: (Op.INSERT, True, True), 170: (Op.UPDATE, True, True), 171: (Op.DELETE, True, True),
}  # fmt: skip


@dataclass(frozen=True)
class Event:
    """``end`` is where the next one begins in the file; 0 for one that is in no file. ``body`` follows the header."""

    at: int
    kind: int
    server: int
    end: int
    size: int
    body: memoryview
    is_ignorable: bool = False


@dataclass(frozen=True)
class Gtid:
    """``domain`` is MariaDB's, ``source`` a MySQL server's UUID; neither for a transaction without a GTID. ``at`` in
    microseconds since 1970: 0 if the event does not tell. ``has_no_effect``: what its statement says does not happen
    here."""

    number: int
    domain: int | None = None
    source: str = ""
    flags: int = 0
    at: int = 0
    has_no_effect: bool = False


@dataclass(frozen=True)
class Query:
    """``is_strict``: values that do not fit are refused, and not converted."""

    database: str
    text: str
    is_strict: bool = True


@dataclass(frozen=True)
class WireColumn:
    """A column as the log describes it. ``meta`` are its type's bytes, ``collation`` the number of its collation (63:
    bytes), ``members`` those of an ENUM or SET, still in their character set."""

    name: str
    type: int
    meta: bytes
    is_unsigned: bool = False
    collation: int = 63
    members: tuple[bytes, ...] = ()


@dataclass(frozen=True)
class TableMap:
    id: int
    database: str
    name: str
    columns: tuple[WireColumn, ...]


def event_of(data: bytes | memoryview, checksum: bool) -> Event:
    at, kind, server, size, end, flags = _HEADER.unpack_from(data)
    last = len(data) - (_CHECKSUM_BYTES if checksum or kind == Kind.FORMAT else 0)
    return Event(at, kind, server, end, size, memoryview(data)[HEADER_BYTES:last], bool(flags & _IGNORABLE))


def says_checksums(body: memoryview) -> bool:
    """Of a format description without its checksum, which it has if the server knows any: whether all events that
    follow have one."""
    return body[-1] == 1


def rotation(body: memoryview) -> tuple[str, int]:
    """The file that follows, and where reading goes on in it."""
    return bytes(body[8:]).decode(), int(_U64.unpack_from(body)[0])


def mariadb_gtid(body: memoryview) -> Gtid:
    flags, at = body[12], 13
    at += 8 if flags & _GROUP_COMMIT else 0
    at += 6 + body[at + 4] + body[at + 5] if flags & _HAS_XID else 0
    more = body[at] if at < len(body) else 0
    return Gtid(
        _U64.unpack_from(body)[0],
        _U32.unpack_from(body, 8)[0],
        flags=flags,
        has_no_effect=bool(more & _NO_EFFECT),
    )


def gtid_list(body: memoryview) -> dict[int, tuple[int, int]]:
    """The last GTID of each domain before a file of MariaDB's, as in :data:`flowctl.model.binlog.GtidState`. The list
    has one for each server, the last one last."""
    count = _U32.unpack_from(body)[0] & 0x0FFFFFFF
    found = struct.iter_unpack("<IIQ", body[4 : 4 + 16 * count])
    return {domain: (server, number) for domain, server, number in found}


def mysql_gtid(body: memoryview, *, is_anonymous: bool) -> Gtid:
    """With the time of the commit, which MySQL 8 tells exactly."""
    source, number = str(uuid.UUID(bytes=bytes(body[1:17]))), _U64.unpack_from(body, 17)[0]
    at = int.from_bytes(body[42:49], "little") & ((1 << 55) - 1) if len(body) >= 49 and body[25] == 2 else 0
    return Gtid(0, at=at) if is_anonymous else Gtid(number, source=source, at=at)


def is_prepared(body: memoryview) -> bool:
    """Whether the transaction that an event of the kind XA_PREPARE ends is prepared only, and may be rolled back later.
    `XA COMMIT … ONE PHASE` has the same event, and commits. Source: MySQL's `control_events.cpp`."""
    return body[0] == 0


def query(kind: int, body: memoryview) -> Query:
    database_length, variables = body[8], _U16.unpack_from(body, 11)[0]
    at = (_LOAD_BYTES if kind == Kind.LOAD_QUERY else _QUERY_BYTES) + variables
    database = bytes(body[at : at + database_length])
    text = body[at + database_length + 1 :]
    content = _inflated(text) if kind == Kind.QUERY_COMPRESSED else bytes(text)
    return Query(
        database.decode("utf-8", "replace"), content.decode("utf-8", "replace"), _is_strict(body[at - variables : at])
    )


def _is_strict(variables: memoryview) -> bool:
    """By the `sql_mode` among a query's variables: behind the flags, which come first. Without it, nobody knows."""
    at = 5 if variables and variables[0] == _FLAGS else 0
    return at < len(variables) and variables[at] == _MODE and bool(_U64.unpack_from(variables, at + 1)[0] & _STRICT)


def mapped_table(body: memoryview) -> tuple[int, str, str]:
    """The id, database and name of a table map."""
    database, at = _text(body, 8)
    name, _ = _text(body, at + 1)
    return rows_table(body), database, name


def rows_table(body: memoryview) -> int:
    """The id of the table that rows, or a table map, are of."""
    return int.from_bytes(body[:6], "little")


def table_map(body: memoryview, *, is_mariadb: bool) -> TableMap:
    id, database, name = mapped_table(body)
    _, at = _text(body, 8)
    _, at = _text(body, at + 1)
    count, at = packed(body, at + 1)
    types = bytes(body[at : at + count])
    _, at = packed(body, at + count)
    metas = []
    for type in types:
        length = _META_BYTES.get(type, 0)
        metas.append(bytes(body[at : at + length]))
        at += length
    more = dict(_fields(body, at + (count + 7) // 8))
    if _NAMES not in more:
        raise StoppedByPolicy(
            f"the log has changes of {database}.{name} without the names of its columns: binlog_row_metadata was not "
            "FULL",
            hint="Set binlog_row_metadata = FULL, in my.cnf too, then run `flowctl state resnapshot` for the stream",
        )
    return TableMap(id, database, name, _columns(types, metas, more, is_mariadb=is_mariadb))


@dataclass(frozen=True)
class RowsEvent:
    """``rows`` are images of rows, one after the other; of an update, pairs of them."""

    op: Op
    columns: int
    is_whole: bool
    rows: memoryview


def rows(kind: int, body: memoryview) -> RowsEvent:
    op, has_more, is_compressed = ROWS[kind]
    at = 8
    if has_more:
        at += _U16.unpack_from(body, at)[0]
    count, at = packed(body, at)
    size, is_whole = (count + 7) // 8, True
    for _ in range(2 if op == Op.UPDATE else 1):
        present = int.from_bytes(body[at : at + size], "little")
        is_whole = is_whole and present & ((1 << count) - 1) == (1 << count) - 1
        at += size
    images = body[at:]
    return RowsEvent(op, count, is_whole, memoryview(_inflated(images)) if is_compressed else images)


def packed(data: memoryview, at: int) -> tuple[int, int]:
    """A number of one to nine bytes, and the place after it."""
    first = data[at]
    if first < 251:
        return first, at + 1
    length = {252: 2, 253: 3, 254: 8}[first]
    return int.from_bytes(data[at + 1 : at + 1 + length], "little"), at + 1 + length


#: Bytes of description per type in a table map: FLOAT, DOUBLE, VARCHAR, BIT, the types with fractions, JSON, DECIMAL,
#: ENUM, SET, BLOB, CHAR and GEOMETRY.
_META_BYTES = {
    4: 1, 5: 1, 15: 2, 16: 2, 17: 1, 18: 1, 19: 1, 140: 1, 141: 2, 245: 1, 246: 2, 247: 2, 248: 2, 249: 1, 250: 1,
    251: 1, 252: 1, 253: 2, 254: 2, 255: 1,
}  # fmt: skip
_ENUM, _SET, _GEOMETRY, _YEAR, _CHAR = 247, 248, 255, 13, 254
_SIGNS, _DEFAULT_CHARSET, _CHARSETS, _NAMES, _SETS, _ENUMS, _MEMBERS_DEFAULT, _MEMBERS = 1, 2, 3, 4, 5, 6, 10, 11
_NUMBERS = (1, 2, 3, 4, 5, 8, 9, 246)
_TEXTS = (15, 252, 253, 254)


def real_type(type: int, meta: bytes) -> int:
    """CHAR, ENUM and SET share a type; the first byte of the description tells them apart."""
    return meta[0] if type == _CHAR and meta[0] in (_ENUM, _SET) else type


def _columns(
    types: bytes, metas: list[bytes], more: dict[int, memoryview], *, is_mariadb: bool
) -> tuple[WireColumn, ...]:
    """MariaDB counts years among the numbers, and geometries among the texts."""
    real = [real_type(type, meta) for type, meta in zip(types, metas, strict=True)]
    numbers = [at for at, type in enumerate(real) if type in (*_NUMBERS, *((_YEAR,) if is_mariadb else ()))]
    texts = [at for at, type in enumerate(real) if type in (*_TEXTS, *((_GEOMETRY,) if is_mariadb else ()))]
    listed = [at for at, type in enumerate(real) if type in (_ENUM, _SET)]
    signs = more.get(_SIGNS, memoryview(b""))
    unsigned = {at for place, at in enumerate(numbers) if signs[place >> 3] & (0x80 >> (place & 7))}
    collations = {
        **_collations(texts, more.get(_DEFAULT_CHARSET), more.get(_CHARSETS)),
        **_collations(listed, more.get(_MEMBERS_DEFAULT), more.get(_MEMBERS)),
    }
    members = {
        **dict(zip([at for at in listed if real[at] == _SET], _members(more.get(_SETS)), strict=False)),
        **dict(zip([at for at in listed if real[at] == _ENUM], _members(more.get(_ENUMS)), strict=False)),
    }
    names = list(_strings(more[_NAMES]))
    return tuple(
        WireColumn(names[at], real[at], metas[at], at in unsigned, collations.get(at, 63), members.get(at, ()))
        for at in range(len(types))
    )


def _collations(places: list[int], default: memoryview | None, each: memoryview | None) -> dict[int, int]:
    """One for all columns with exceptions, or one for each."""
    if each is not None:
        return dict(zip(places, _numbers(each), strict=True))
    if default is None:
        return {}
    usual, *exceptions = _numbers(default)
    special = dict(zip(exceptions[::2], exceptions[1::2], strict=True))
    return {at: special.get(number, usual) for number, at in enumerate(places)}


def _fields(body: memoryview, at: int) -> Iterator[tuple[int, memoryview]]:
    while at < len(body):
        kind = body[at]
        length, at = packed(body, at + 1)
        yield kind, body[at : at + length]
        at += length


def _numbers(data: memoryview) -> list[int]:
    found, at = [], 0
    while at < len(data):
        number, at = packed(data, at)
        found.append(number)
    return found


def _strings(data: memoryview) -> Iterator[str]:
    at = 0
    while at < len(data):
        length, at = packed(data, at)
        yield bytes(data[at : at + length]).decode()
        at += length


def _members(data: memoryview | None) -> Iterator[tuple[bytes, ...]]:
    at = 0
    while data is not None and at < len(data):
        count, at = packed(data, at)
        found = []
        for _ in range(count):
            length, at = packed(data, at)
            found.append(bytes(data[at : at + length]))
            at += length
        yield tuple(found)


def _text(body: memoryview, at: int) -> tuple[str, int]:
    length = body[at]
    return bytes(body[at + 1 : at + 1 + length]).decode(), at + 1 + length


def _inflated(data: memoryview) -> bytes:
    """MariaDB's `log_bin_compress`: a byte with the number of bytes of the length, the length, then zlib."""
    return zlib.decompress(data[1 + (data[0] & 0x07) :])
