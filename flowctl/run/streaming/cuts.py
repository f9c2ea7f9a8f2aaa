"""Cuts: which versions of a lake's tables show one moment of a stream's source.

Tables of a lake are committed one by one, so their newest versions may be a round apart. After each round a cut names,
for every table, the version that has exactly what the source had at the end of the round. A reader that opens these
versions sees no child without its parent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flowctl.model import codec
from flowctl.spec.spec import Spec
from flowctl.storage.blobs import BlobStore
from flowctl.storage.landing import LandedBatch
from flowctl.storage.options import open_store

FORMAT = 1
#: Cuts that are kept; each names the versions of all tables.
KEPT = 1_000
_NAME = re.compile(r"(\d+)\.json")


@dataclass(frozen=True)
class CutTable:
    """``parts`` name the object below the connection, ``version`` is the one that belongs to the cut, ``seq`` that of
    the last commit in it."""

    parts: tuple[str, ...]
    version: int
    seq: int

    @property
    def table(self) -> str:
        return ".".join(self.parts)


@dataclass(frozen=True)
class Cut:
    """``batch`` is the last one that it has; ``at`` is the position in the source's log, ``event_at`` (RFC 3339) the
    time of the last commit before it. ``tables`` are by id."""

    stream: str
    lineage: str
    batch: int
    at: str
    event_at: str
    tables: Mapping[str, CutTable]
    format: int = FORMAT


def new_cut(stream: str, lineage: str, batch: LandedBatch, tables: Mapping[str, CutTable]) -> Cut:
    return Cut(stream, lineage, batch.batch, str(batch.upper), batch.event_at, dict(tables))


class Cuts:
    """The cuts of one stream in one folder, by the number of their last batch."""

    def __init__(self, spec: Spec, folder: str, lineage: str, stream: str) -> None:
        self._blobs: BlobStore = open_store(folder, spec.storage, unsafe=spec.state.unsafe, private=False)
        self._prefix = f"{lineage}.{stream}/"

    def write(self, cut: Cut) -> None:
        """Does nothing if the cut is there already: a run was killed before it recorded the round."""
        content: dict[str, Any] = codec.to_json(cut)
        self._blobs.create(self._name(cut.batch), (json.dumps(content, indent=1, ensure_ascii=False) + "\n").encode())

    def newest(self, count: int = 1) -> list[Cut]:
        """The newest first."""
        found = (self._blobs.get(self._name(number)) for number in reversed(self._numbers()[-count:]))
        return [codec.from_json(Cut, json.loads(data)) for data in found if data is not None]

    def prune(self, kept: int = KEPT) -> None:
        for number in self._numbers()[:-kept]:
            self._blobs.delete(self._name(number))

    def _numbers(self) -> list[int]:
        names = (info.name.removeprefix(self._prefix) for info in self._blobs.list(self._prefix))
        return sorted(int(match[1]) for name in names if (match := _NAME.fullmatch(name)))

    def _name(self, number: int) -> str:
        return f"{self._prefix}{number}.json"
