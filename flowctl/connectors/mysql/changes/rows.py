"""Images of rows as they lie in the log: a bit for each null, then the values of the other columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from flowctl.connectors.mysql.changes.wire import Wire


@dataclass(frozen=True)
class RowSplitter:
    """Finds where each row ends. ``steps`` are those of a row without nulls: bytes to pass, then those of a length."""

    sizes: tuple[tuple[int, int], ...]
    steps: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, wires: Sequence[Wire]) -> RowSplitter:
        sizes = tuple(wire.size for wire in wires)
        steps, fixed = [], 0
        for size, prefix in sizes:
            fixed += size
            if prefix:
                steps.append((fixed, prefix))
                fixed = 0
        return cls(sizes, (*steps, (fixed, 0)))

    def split(self, data: bytes, images: int) -> Iterator[bytes]:
        """Rows of ``images`` images each."""
        at = 0
        while at < len(data):
            start = at
            for _ in range(images):
                at = self._end(data, at)
            yield data[start:at]

    def _end(self, data: bytes, at: int) -> int:
        nulls = (len(self.sizes) + 7) // 8
        flags = int.from_bytes(data[at : at + nulls], "little") & ((1 << len(self.sizes)) - 1)
        at += nulls
        steps = self.steps if not flags else [one for bit, one in enumerate(self.sizes) if not flags >> bit & 1]
        for fixed, prefix in steps:
            at += fixed
            if prefix:
                at += prefix + int.from_bytes(data[at : at + prefix], "little")
        return at


class RowReader:
    """Finds the values of some columns (``wanted``: their places) in images, as they lie there."""

    def __init__(self, wires: Sequence[Wire], wanted: Sequence[int]) -> None:
        places = {bit: place for place, bit in enumerate(wanted)}
        self._width = len(wanted)
        self._null_bytes = (len(wires) + 7) // 8
        self._plan = [(1 << bit, places.get(bit, -1), *wire.size) for bit, wire in enumerate(wires)]

    def read(self, data: bytes, at: int) -> tuple[list[bytes | None], int]:
        """Of one image, in the order of ``wanted``, and the place after it."""
        start = at + self._null_bytes
        nulls = int.from_bytes(data[at:start], "little")
        values: list[bytes | None] = [None] * self._width
        for bit, place, fixed, prefix in self._plan:
            if nulls & bit:
                continue
            if prefix:
                begin = start + prefix
                end = begin + int.from_bytes(data[start:begin], "little")
            else:
                begin, end = start, start + fixed
            if place >= 0:
                values[place] = data[begin:end]
            start = end
        return values, start
