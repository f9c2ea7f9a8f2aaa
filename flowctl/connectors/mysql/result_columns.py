"""Results as the server sends them, taken apart column by column: the driver makes an object of each packet and value.

Only whole packets in the driver's buffer are read here. Everything else is left to the driver: what has not arrived,
the end of the result, errors, packets out of order and those of 16 MB or more. Source of the format: MySQL's
client/server protocol, text result set rows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from flowctl.connectors.arrow import pieces

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    Bytes = npt.NDArray[np.uint8]
    Numbers = npt.NDArray[np.int64]

_HEADER_BYTES = 4
_PACKET_LIMIT = 0xFFFFFF
_NULL, _TWO_BYTES, _THREE_BYTES, _EIGHT_BYTES = 0xFB, 0xFC, 0xFD, 0xFE
_WIDTHS = {_TWO_BYTES: 2, _THREE_BYTES: 3, _EIGHT_BYTES: 8}
#: A batch ends with the row that reaches this size.
_BATCH_BYTES = 8 << 20
#: Of a connection that reads results: what has arrived is taken at once.
_BUFFER_BYTES = 1 << 18


class RawRows:
    """Rows of one batch, as they were sent."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._bytes = 0
        self._starts: list[int] = []
        self._ends: list[int] = []

    def __len__(self) -> int:
        return len(self._starts)

    def is_full(self, rows: int) -> bool:
        return len(self._starts) >= rows or self._bytes >= _BATCH_BYTES

    def add(self, row: bytes) -> None:
        self._starts.append(self._bytes)
        self._append(row)
        self._ends.append(self._bytes)

    def add_buffered(self, driver: Any, most: int) -> None:
        """All whole rows that have arrived, until there are ``most``."""
        try:
            data = driver._rfile.peek()
        except OSError:  # the driver's own next read fails as well, and says what it means
            return
        at, number, base = 0, driver._next_seq_id, self._bytes
        starts, ends = self._starts, self._ends
        for _ in range(most - len(starts)):
            if len(data) - at <= _HEADER_BYTES:
                break
            size = data[at] | data[at + 1] << 8 | data[at + 2] << 16
            start = at + _HEADER_BYTES
            is_whole = size < _PACKET_LIMIT and start + size <= len(data)
            if not is_whole or data[at + 3] != number or data[start] >= _EIGHT_BYTES:
                break
            at = start + size
            starts.append(base + start)
            ends.append(base + at)
            number = (number + 1) % 256
        if at:
            self._append(driver._rfile.read(at))
            driver._next_seq_id = number

    def columns(self, encodings: Sequence[str | None]) -> list[pa.Array]:
        """One array for each column: of texts, or of bytes where it has no encoding. ``ArrowInvalid`` for a text that
        is not UTF-8."""
        import numpy as np
        import pyarrow as pa

        data = np.frombuffer(b"".join(self._pieces), np.uint8)
        found = _values(data, np.array(self._starts, np.int64), np.array(self._ends, np.int64), len(encodings))
        arrays = [pieces(data, *value, pa.large_binary()) for value in found]
        return [
            array.cast(pa.binary() if encoding is None else pa.string())
            for array, encoding in zip(arrays, encodings, strict=True)
        ]

    def _append(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._bytes += len(piece)


def widen_buffer(driver: Any) -> None:
    """For a connection between two statements, when nothing is in its buffer."""
    driver._rfile = driver._sock.makefile("rb", buffering=_BUFFER_BYTES)


def keep_raw(result: Any) -> None:
    """Has the driver return each row of ``result`` as it was sent."""
    result._read_row_from_packet = lambda packet: packet.get_all_data()


def _values(data: Bytes, at: Numbers, ends: Numbers, columns: int) -> Iterator[tuple[Numbers, Numbers, Any]]:
    """Of each column: where its values begin and end, and which are not null. ``at`` is where rows begin. Each value
    begins with its length, which has one byte, or a mark and more."""
    for _ in range(columns):
        marks = data[at]
        at, sizes, is_given = at + 1, marks.astype("int64"), marks != _NULL
        if (marks >= _NULL).any():
            sizes[~is_given] = 0
            for mark, width in _WIDTHS.items():
                (longer,) = (marks == mark).nonzero()
                if len(longer):
                    sizes[longer] = sum(data[at[longer] + byte].astype("int64") << 8 * byte for byte in range(width))
                    at[longer] += width
        begins, at = at, at + sizes
        yield begins, at, is_given
    if (at != ends).any():
        raise ValueError("a row of the result has other columns than the result")
