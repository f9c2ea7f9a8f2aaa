"""Which log a place is in: `RESET MASTER` gives the same files and GTIDs again, to other transactions.

A position has with it the file in which it was reached. As long as the log is the same, the server begins to send in
this very file, or in a later one that begins at the position.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from typing import Literal

from flowctl.connectors.mysql.changes.events import Event
from flowctl.model import binlog

#: ``unclear``: the GTIDs before the file are needed to tell.
Verdict = Literal["same", "another", "unclear"]


@dataclass(frozen=True)
class OpenedFile:
    """A file of a log: the server that wrote it, and when, in seconds since 1970."""

    server: int
    created: int
    name: str

    @classmethod
    def of(cls, description: Event, name: str) -> OpenedFile:
        """``description`` is the event of the kind FORMAT with which the file begins."""
        return cls(description.server, description.at, name)

    @classmethod
    def from_text(cls, text: str) -> OpenedFile:
        server, created, name = text.split("/", 2)
        return cls(int(server), int(created), name)

    def __str__(self) -> str:
        return f"{self.server}/{self.created}/{self.name}"

    @property
    def described(self) -> str:
        created = dt.datetime.fromtimestamp(self.created, dt.UTC)
        return f"{self.name} of server_id {self.server}, begun {created:%Y-%m-%d %H:%M:%S} UTC"


def verdict(
    known: OpenedFile, here: OpenedFile, place: str, before: binlog.GtidState | None, *, is_mariadb: bool
) -> Verdict:
    """Whether ``place``, reached in ``known``, means the same where the server has it now. ``before`` is what MariaDB's
    log has before ``here``. Another server of a topology has the same GTIDs in files of its own; the same is true of a
    replica for the GTIDs of others, whichever log it has begun since."""
    if here == known:
        return "same"
    if binlog.file_of(place):
        return "another"
    if here.server != known.server:
        return "same"
    if not is_mariadb:
        return "another" if _is_earlier(here.name, known.name) else "same"
    state = binlog.state_from_text(place)
    if here.server not in {server for server, _ in state.values()}:
        return "same"
    if before is None:
        return "unclear"
    return "same" if before and before.items() <= state.items() else "another"


def _is_earlier(name: str, other: str) -> bool:
    """Or of the same name, though not the same."""
    (base, _, number), (other_base, _, other_number) = name.rpartition("."), other.rpartition(".")
    return base == other_base and int(number) <= int(other_number)
