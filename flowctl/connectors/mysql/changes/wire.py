"""How a column lies in a row of the log: its length, its text as a query returns it, and the type that it has.

Each converter returns what ``SELECT`` returns for the same value, so that the conversion of
:mod:`flowctl.connectors.mysql.columns` is the same for both. Source of the formats: MySQL's `rows_event.h` and
MariaDB's `field.cc`.
"""

from __future__ import annotations

import datetime as dt
import json
import socket
import struct
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from flowctl.connectors.mysql.changes.events import WireColumn
from flowctl.connectors.mysql.types import split_comment

Value = str | bytes | None

_INTEGERS = {1: ("tinyint", 1), 2: ("smallint", 2), 9: ("mediumint", 3), 3: ("int", 4), 8: ("bigint", 8)}
_FLOAT, _DOUBLE, _DATE, _YEAR, _VARCHAR, _BIT, _TIMESTAMP, _DATETIME, _TIME = 4, 5, 10, 13, 15, 16, 17, 18, 19
_JSON, _DECIMAL, _ENUM, _SET, _BLOB, _VAR_STRING, _CHAR, _GEOMETRY = 245, 246, 247, 248, 252, 253, 254, 255
_BLOBS = {1: "tiny", 2: "", 3: "medium", 4: "long"}
#: Bytes of up to nine decimal digits.
_DIGIT_BYTES = (0, 1, 1, 2, 2, 3, 3, 4, 4, 4)
#: Types that the log describes as BINARY of this length.
_AS_BINARY = {"uuid": 16, "inet6": 16, "inet4": 4}

#: Python's names of the character sets that both decode alike.
CODECS = {
    "utf8": "utf-8", "utf8mb3": "utf-8", "utf8mb4": "utf-8", "utf16": "utf-16-be", "utf16le": "utf-16-le",
    "utf32": "utf-32-be", "ucs2": "utf-16-be", "ascii": "ascii", "latin1": "latin1", "latin2": "iso8859-2",
    "latin5": "iso8859-9", "latin7": "iso8859-13", "cp850": "cp850", "cp852": "cp852", "cp1250": "cp1250",
    "cp1251": "cp1251", "cp1257": "cp1257", "koi8r": "koi8-r", "macroman": "mac_roman",
}  # fmt: skip


@dataclass(frozen=True)
class Wire:
    """``charset`` is empty for bytes. ``special`` names a type that the log cannot tell from BINARY (`uuid`)."""

    type: int
    meta: bytes
    is_unsigned: bool
    charset: str
    members: tuple[str, ...] = ()
    special: str = ""

    def to_text(self) -> str:
        return json.dumps([self.type, self.meta.hex(), self.is_unsigned, self.charset, self.members, self.special])

    @classmethod
    def from_text(cls, text: str) -> Wire:
        type, meta, is_unsigned, charset, members, special = json.loads(text)
        return cls(type, bytes.fromhex(meta), is_unsigned, charset, tuple(members), special)

    @property
    def length(self) -> int:
        """In bytes, of a CHAR or VARCHAR."""
        if self.type == _CHAR:
            return self.meta[1] | ((self.meta[0] & 0x30) ^ 0x30) << 4
        return int.from_bytes(self.meta, "little")

    @property
    def is_padded(self) -> bool:
        """Whether the log leaves out zeros at the end."""
        return self.type == _CHAR and not self.charset

    @property
    def size(self) -> tuple[int, int]:
        """Its bytes, or 0 and those of the length before it; (0, 0) for a type that is not known here."""
        match self.type:
            case type if type in _INTEGERS:
                return _INTEGERS[type][1], 0
            case type if type in _FIXED:
                return _FIXED[type], 0
            case type if type in _WITH_FRACTION:
                return _WITH_FRACTION[type] + _fraction_bytes(self.meta[0]), 0
            case 246:
                return _decimal_bytes(*self.meta), 0
            case 16:
                return self.meta[1] + (self.meta[0] > 0), 0
            case 247 | 248:
                return self.meta[1], 0
            case 15 | 253 | 254:
                return 0, 1 if self.length < 256 else 2
            case 245 | 252 | 255:
                return 0, self.meta[0]
            case _:
                return 0, 0

    @property
    def native(self) -> str:
        """The type as the server would write it, as far as the log tells."""
        unsigned = " unsigned" if self.is_unsigned else ""
        match self.type:
            case type if type in _INTEGERS:
                return f"{_INTEGERS[type][0]}{unsigned}"
            case type if type in _NAMES:
                return _NAMES[type]
            case type if type in _WITH_FRACTION_NAMES:
                return _WITH_FRACTION_NAMES[type] + (f"({self.meta[0]})" if self.meta[0] else "")
            case 246:
                return f"decimal({self.meta[0]},{self.meta[1]}){unsigned}"
            case 16:
                return f"bit({self.meta[1] * 8 + self.meta[0]})"
            case 247 | 248:
                listed = ",".join("'" + member.replace("'", "''") + "'" for member in self.members)
                return f"{'enum' if self.type == _ENUM else 'set'}({listed})"
            case 252:
                return f"{_BLOBS[self.meta[0]]}{'text' if self.charset else 'blob'}"
            case 254:
                return self.special or ("char" if self.charset else f"binary({self.length})")
            case _:
                return "varchar" if self.charset else f"varbinary({self.length})"

    def is_of(self, native: str) -> bool:
        """Whether a column that is now ``native`` had this form: then that is its type."""
        declared = split_comment(native)[0].lower()
        if self.type in (_ENUM, _SET):
            return declared == self.native.lower()
        if self.type in (_CHAR, _VARCHAR, _VAR_STRING, _GEOMETRY):
            name = declared.partition("(")[0]
            return name in (self.native.partition("(")[0], *(_SPATIAL if self.type == _GEOMETRY else ()))
        return _essence(declared) == _essence(self.native)


def wire_of(column: WireColumn, charset: str, native: str) -> Wire:
    """``native`` is the column's type now, if it is known."""
    codec = CODECS.get(charset, "")
    members = tuple(_decoded(member, codec or "latin1") for member in column.members)
    wire = Wire(column.type, column.meta, column.is_unsigned, charset, members)
    name = native.lower().partition("(")[0]
    is_special = column.type == _CHAR and not charset and _AS_BINARY.get(name) == wire.length
    return Wire(column.type, column.meta, column.is_unsigned, charset, members, name) if is_special else wire


def why_unreadable(wire: Wire) -> str:
    """Empty if values can be read exactly."""
    if wire.type == _JSON:
        return "MySQL's JSON is in the log in a form of its own"
    if wire.size == (0, 0):
        return f"its type in the log ({wire.type}) is not known"
    if wire.charset and wire.charset not in CODECS:
        return f"its character set is {wire.charset}"
    return ""


def converter(wire: Wire) -> Callable[[bytes], Value]:
    """Of the bytes of one value, for columns that are readable."""
    if wire.size[1]:
        return _content(wire)
    if wire.type in _INTEGERS:
        is_signed = not wire.is_unsigned
        return lambda data: str(int.from_bytes(data, "little", signed=is_signed))
    return _fixed(wire)


def _content(wire: Wire) -> Callable[[bytes], Value]:
    if wire.type == _GEOMETRY:
        return lambda data: data.hex().upper()
    if wire.special:
        return _SPECIAL[wire.special]
    if wire.charset:
        codec = CODECS[wire.charset]
        return lambda data: _decoded(data, codec)
    if wire.is_padded:
        length = wire.length
        return lambda data: data.ljust(length, b"\0")
    return bytes


def _fixed(wire: Wire) -> Callable[[bytes], Value]:
    match wire.type:
        case 4:
            return lambda data: _number(struct.unpack("<f", data)[0])
        case 5:
            return lambda data: _number(struct.unpack("<d", data)[0])
        case 10:
            return _date
        case 13:
            return lambda data: f"{1900 + data[0] if data[0] else 0:04d}"
        case 16:
            return lambda data: str(int.from_bytes(data, "big"))
        case 17:
            return lambda data: _timestamp(data, wire.meta[0])
        case 18:
            return lambda data: _datetime(data, wire.meta[0])
        case 19:
            return lambda data: _time(data, wire.meta[0])
        case 246:
            precision, scale = wire.meta
            groups = [(digits, _DIGIT_BYTES[digits]) for digits in _groups(precision, scale)]
            return lambda data: _decimal(data, groups, precision - scale)
        case 247:
            return lambda data: _member(wire.members, int.from_bytes(data, "little"))
        case _:
            return lambda data: _chosen(wire.members, int.from_bytes(data, "little"))


def _decimal(data: bytes, groups: Sequence[tuple[int, int]], whole_digits: int) -> str:
    """Up to nine digits in up to four bytes each; the first bit is the sign, negatives are inverted."""
    number, is_negative = int.from_bytes(data, "big"), not data[0] & 0x80
    bits = 8 * len(data)
    number ^= ((1 << bits) - 1) >> 1 if is_negative else 1 << bits - 1
    found = []
    for digits, size in groups:
        bits -= 8 * size
        found.append(f"{number >> bits & (1 << 8 * size) - 1:0{digits}d}")
    text = "".join(found)
    whole, fraction = text[:whole_digits].lstrip("0") or "0", text[whole_digits:]
    sign = "-" if is_negative and text.strip("0") else ""
    return f"{sign}{whole}.{fraction}" if fraction else f"{sign}{whole}"


def _groups(precision: int, scale: int) -> list[int]:
    whole = precision - scale
    groups = [whole % 9, *[9] * (whole // 9), *[9] * (scale // 9), scale % 9]
    return [digits for digits in groups if digits]


def _decimal_bytes(precision: int, scale: int) -> int:
    return sum(_DIGIT_BYTES[digits] for digits in _groups(precision, scale))


def _number(value: float) -> str:
    return repr(value).removesuffix(".0").replace("e+", "e").replace("e-0", "e-")


def _date(data: bytes) -> str:
    days = int.from_bytes(data, "little")
    return f"{days >> 9:04d}-{(days >> 5) & 15:02d}-{days & 31:02d}"


def _datetime(data: bytes, digits: int) -> str:
    packed = int.from_bytes(data[:5], "big") - 0x8000000000
    date, time = packed >> 17, packed & 0x1FFFF
    year, month = divmod(date >> 5, 13)
    clock = f"{time >> 12:02d}:{(time >> 6) & 63:02d}:{time & 63:02d}"
    return f"{year:04d}-{month:02d}-{date & 31:02d} {clock}{_fraction(data[5:], digits)}"


def _timestamp(data: bytes, digits: int) -> str:
    seconds = int.from_bytes(data[:4], "big")
    if not seconds:
        return f"0000-00-00 00:00:00{_fraction(data[4:], digits)}"
    moment = dt.datetime.fromtimestamp(seconds, dt.UTC)
    return f"{moment:%Y-%m-%d %H:%M:%S}{_fraction(data[4:], digits)}"


def _time(data: bytes, digits: int) -> str:
    bits = 8 * _fraction_bytes(digits)
    packed = int.from_bytes(data, "big") - (0x800000 << bits)
    time, fraction = abs(packed) >> bits, (abs(packed) & ((1 << bits) - 1)).to_bytes(bits // 8, "big")
    clock = f"{time >> 12:02d}:{(time >> 6) & 63:02d}:{time & 63:02d}"
    return f"{'-' if packed < 0 else ''}{clock}{_fraction(fraction, digits)}"


def _fraction(data: bytes, digits: int) -> str:
    if not digits:
        return ""
    micros = int.from_bytes(data, "big") * 10 ** (6 - 2 * len(data))
    return f".{micros:06d}"[: digits + 1]


def _fraction_bytes(digits: int) -> int:
    return (digits + 1) // 2


def _member(members: tuple[str, ...], number: int) -> str:
    """0 is what a server that is not strict made of a wrong value."""
    return members[number - 1] if number else ""


def _chosen(members: tuple[str, ...], bits: int) -> str:
    return ",".join(member for place, member in enumerate(members) if bits >> place & 1)


def _decoded(data: bytes, codec: str) -> str:
    """MySQL's latin1 is Windows' cp1252, with control characters where that has nothing. A byte that means nothing in
    another set of single bytes is a question mark to everybody who reads the table."""
    if codec.startswith("utf"):
        return data.decode(codec)
    if codec != "latin1":
        return data.decode(codec, "replace").replace("\ufffd", "?")
    try:
        return data.decode("cp1252")
    except UnicodeDecodeError:
        return "".join(bytes([byte]).decode("cp1252", "ignore") or chr(byte) for byte in data)


def _essence(native: str) -> str:
    """Without what the log does not tell: the width of integers, and whether another number is unsigned."""
    name, _, rest = native.partition("(")
    if name.split(" ")[0] in ("tinyint", "smallint", "mediumint", "int", "bigint"):
        is_unsigned = "unsigned" in native or "zerofill" in native
        return f"{name.split(' ')[0]}{' unsigned' if is_unsigned else ''}"
    if name.split(" ")[0] in ("float", "double", "year"):
        return name.split(" ")[0]
    return f"{name}({rest.partition(')')[0]})" if rest else name.split(" ")[0]


_FIXED = {_FLOAT: 4, _DOUBLE: 8, _DATE: 3, _YEAR: 1}
_NAMES = {_FLOAT: "float", _DOUBLE: "double", _DATE: "date", _YEAR: "year", _JSON: "json", _GEOMETRY: "geometry"}
_WITH_FRACTION = {_TIMESTAMP: 4, _DATETIME: 5, _TIME: 3}
_WITH_FRACTION_NAMES = {_TIMESTAMP: "timestamp", _DATETIME: "datetime", _TIME: "time"}
_SPATIAL = (
    "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon", "geometrycollection",
    "geomcollection",
)  # fmt: skip
_SPECIAL: dict[str, Callable[[bytes], Value]] = {
    "uuid": lambda data: str(uuid.UUID(bytes=data.ljust(16, b"\0"))),
    "inet6": lambda data: socket.inet_ntop(socket.AF_INET6, data.ljust(16, b"\0")),
    "inet4": lambda data: socket.inet_ntop(socket.AF_INET, data.ljust(4, b"\0")),
}
