"""Rows of a result as the server sends them, read faster than by the driver, which makes an object of each packet.

Only whole packets in the driver's buffer are read here. Everything else is left to the driver: what has not arrived,
the end of the result, errors, packets out of order and those of 16 MB or more.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_HEADER_BYTES = 4
_PACKET_LIMIT = 0xFFFFFF
_NULL, _TWO_BYTES, _THREE_BYTES, _EIGHT_BYTES = 0xFB, 0xFC, 0xFD, 0xFE


def buffered_rows(driver: Any, encodings: Sequence[str | None], most: int) -> list[tuple[Any, ...]]:
    """At most ``most`` rows that have arrived: texts, bytes where the column has no encoding, and nulls."""
    try:
        data = driver._rfile.peek()
    except OSError:  # the driver's own next read fails as well, and says what it means
        return []
    at, number = 0, driver._next_seq_id
    rows: list[tuple[Any, ...]] = []
    while len(rows) < most and len(data) - at > _HEADER_BYTES:
        size = data[at] | data[at + 1] << 8 | data[at + 2] << 16
        start = at + _HEADER_BYTES
        is_whole = size < _PACKET_LIMIT and start + size <= len(data)
        if not is_whole or data[at + 3] != number or data[start] >= _EIGHT_BYTES:
            break
        rows.append(_row(data, start, encodings))
        at, number = start + size, (number + 1) % 256
    if at:
        driver._rfile.read(at)
        driver._next_seq_id = number
    return rows


def _row(data: bytes, at: int, encodings: Sequence[str | None]) -> tuple[Any, ...]:
    """``at`` is where its first value begins: with its length, which has one byte, or a mark and more."""
    row: list[Any] = []
    for encoding in encodings:
        size = data[at]
        at += 1
        if size >= _NULL:
            if size == _NULL:
                row.append(None)
                continue
            width = {_TWO_BYTES: 2, _THREE_BYTES: 3, _EIGHT_BYTES: 8}[size]
            size = int.from_bytes(data[at : at + width], "little")
            at += width
        value = data[at : at + size]
        row.append(value if encoding is None else value.decode(encoding))
        at += size
    return tuple(row)
