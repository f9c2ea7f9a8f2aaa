"""Row messages of one table, decoded by column: numpy steps through the columns of all rows at the same time.

A row is ``[K|O tuple] [N tuple]``: the old row (``K``: its replica identity only, all other columns null; ``O``: whole)
and the new one. A tuple is a number of columns, each ``n`` (null), ``u`` (not sent: an unchanged TOAST value), or ``t``
with a length and the value's text.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from flowctl.connectors.arrow import pieces

if TYPE_CHECKING:
    import pyarrow as pa

Bytes = npt.NDArray[np.uint8]
Places = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

NULL, UNSENT, TEXT = ord("n"), ord("u"), ord("t")
OLD_KEY, OLD_ROW, NEW_ROW = ord("K"), ord("O"), ord("N")


@dataclass(frozen=True)
class Values:
    """One column of a tuple, for some rows: ``kinds`` as in the message, and where in the data each text lies."""

    kinds: Bytes
    starts: Places
    ends: Places


@dataclass(frozen=True)
class Tuples:
    """The tuples of some rows, ``rows`` being their numbers; ``markers`` is ``K``, ``O`` or ``N`` for each."""

    rows: Places
    markers: Bytes
    columns: tuple[Values, ...]


@dataclass(frozen=True)
class Rows:
    """All rows of one table in a batch. ``old`` and ``new`` hold those rows that have such a tuple."""

    data: Bytes
    count: int
    old: Tuples
    new: Tuples


def read_rows(messages: pa.Array, columns: int) -> Rows:
    """``messages`` is a binary array of row messages after their table's OID; each tuple has ``columns`` columns."""
    _, offsets, buffer = messages.buffers()
    data = np.frombuffer(buffer, np.uint8) if buffer is not None else np.zeros(0, np.uint8)
    width = np.int64 if messages.type.equals("large_binary") else np.int32
    bounds = np.frombuffer(offsets, width)[messages.offset : messages.offset + len(messages) + 1].astype(np.int64)
    starts, ends = bounds[:-1], bounds[1:]
    everything = np.arange(len(starts))
    has_any = starts < ends  # a TRUNCATE has no tuple
    first = np.zeros(len(starts), np.uint8)
    first[has_any] = data[starts[has_any]]
    is_old = (first == OLD_KEY) | (first == OLD_ROW)
    old, after = _tuples(data, everything[is_old], starts[is_old], columns)
    places = starts.copy()
    places[is_old] = after
    is_new = has_any & (places < ends)
    new, _ = _tuples(data, everything[is_new], places[is_new], columns)
    return Rows(data, len(starts), old, new)


def texts(data: Bytes, values: Values) -> pa.Array:
    """The values as a string array; null where they are null or were not sent. The places must ascend."""
    import pyarrow as pa

    found = pieces(data, values.starts, values.ends, values.kinds == TEXT, pa.large_string())
    return found.cast(pa.string())


def _tuples(data: Bytes, rows: Places, places: Places, columns: int) -> tuple[Tuples, Places]:
    """The tuples at ``places``, and the places after them."""
    markers = data[places]
    at = places + 3  # the marker, and the number of columns
    lengths: Any = _big_endian(data)
    found = []
    for _ in range(columns):
        kinds = data[at]
        is_text = kinds == TEXT
        starts = np.where(is_text, at + 5, at + 1)
        ends = starts.copy()
        ends[is_text] += lengths[at[is_text] + 1]
        found.append(Values(kinds, starts, ends))
        at = ends
    return Tuples(rows, markers, tuple(found)), at


def _big_endian(data: Bytes) -> npt.NDArray[np.int32]:
    """The 32-bit number that begins at each byte."""
    return np.ndarray((max(0, len(data) - 3),), ">i4", data.data, strides=(1,))
