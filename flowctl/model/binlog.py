"""Places in the binary log of MySQL or MariaDB, and what orders them.

A place is everything that had committed by then: as GTIDs, MariaDB's last one of each domain (``0-1-42,1-1-7``) or
MySQL's set of all (``3e11fa47-…:1-5:7``), or as file and offset (``binlog.000007:1184``). GTIDs mean the same on all
servers of a topology, files only on one. The order of GTIDs is how many there are: each transaction adds to it,
whichever server it comes from.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

#: Of a place within the captured changes of another stream: nothing but its order is known.
ORDER_ONLY = "@"
_FILE = re.compile(r"[^,@]+\.(\d{1,10}):(\d{1,10})")
_MARIADB = re.compile(r"(\d+)-(\d+)-(\d+)")
_UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_MYSQL = re.compile(rf"({_UUID})((?::\d+(?:-\d+)?)+)")

#: The transactions of each server, as intervals of numbers with both ends, ascending.
GtidSet = Mapping[str, tuple[tuple[int, int], ...]]
#: Server and number of the last transaction of each domain.
GtidState = Mapping[int, tuple[int, int]]


def order_of(place: str) -> int:
    """Grows with the log. ``ValueError`` for anything but a place."""
    if not place:
        return 0
    if place.startswith(ORDER_ONLY):
        return int(place[1:])
    if found := _FILE.fullmatch(place):
        return file_order(int(found[1]), int(found[2]))
    if ":" not in place:  # a server's UUID may begin like a GTID of MariaDB
        return sum(number for _, number in state_from_text(place).values())
    return count(set_from_text(place))


def comparable(one: str, other: str) -> bool:
    """Whether their orders mean the same: a file is not comparable to GTIDs."""
    if one.startswith(ORDER_ONLY) or other.startswith(ORDER_ONLY):
        return True
    return (file_of(one) is None) == (file_of(other) is None)


def file_order(number: int, offset: int) -> int:
    return number << 32 | offset


def file_of(place: str) -> tuple[str, int] | None:
    """File and offset; None for GTIDs."""
    if not _FILE.fullmatch(place):
        return None
    file, _, offset = place.rpartition(":")
    return file, int(offset)


def state_from_text(text: str) -> dict[int, tuple[int, int]]:
    found = {}
    for one in _parts(text):
        match = _MARIADB.fullmatch(one)
        if match is None:
            raise ValueError(f"no GTID of MariaDB: {one!r}")
        found[int(match[1])] = int(match[2]), int(match[3])
    return found


def state_text(state: GtidState) -> str:
    return ",".join(f"{domain}-{server}-{number}" for domain, (server, number) in sorted(state.items()))


def set_from_text(text: str) -> dict[str, tuple[tuple[int, int], ...]]:
    found: dict[str, list[tuple[int, int]]] = {}
    for one in _parts(text):
        match = _MYSQL.fullmatch(one.lower())
        if match is None:
            raise ValueError(f"no GTIDs of MySQL: {one!r}")
        for interval in match[2].strip(":").split(":"):
            first, _, last = interval.partition("-")
            found.setdefault(match[1], []).append((int(first), int(last or first)))
    return {server: merged(intervals) for server, intervals in found.items()}


def set_text(gtids: GtidSet) -> str:
    def interval(first: int, last: int) -> str:
        return f"{first}" if first == last else f"{first}-{last}"

    return ",".join(
        ":".join([server, *(interval(*one) for one in intervals)]) for server, intervals in sorted(gtids.items())
    )


def merged(intervals: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    found: list[tuple[int, int]] = []
    for first, last in sorted(intervals):
        if found and first <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], last)
        else:
            found.append((first, last))
    return tuple(found)


def with_gtid(gtids: GtidSet, server: str, number: int) -> GtidSet:
    return {**gtids, server: merged([*gtids.get(server, ()), (number, number)])}


def count(gtids: GtidSet) -> int:
    return sum(last - first + 1 for intervals in gtids.values() for first, last in intervals)


def _parts(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]
