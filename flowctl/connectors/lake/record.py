"""The record of a commit, which a table format stores with the data: what it has beyond :class:`Commit`, and how it is
identified."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from flowctl.model import codec
from flowctl.model.codec import in_json
from flowctl.model.commit import Commit, RowCounts

_FORMAT = 1


#: What the sidecar is for, in application ids of observations.
OBSERVATIONS = "observed"


def app_id(lineage: str, table: str, purpose: str = "") -> str:
    """Identifies one table of one flow to a table format, which keeps the newest sequence number of each. ``purpose``
    is that of its sidecar."""
    return f"flowctl:{lineage}:{table}{':' if purpose else ''}{purpose}"


def sidecar_record(commit: Commit, version: int, identity: str, purpose: str) -> Record:
    """The record of a sidecar's next commit, after ``version``, which belongs to ``commit`` of the table. It must be
    repeatable under the same intent, so its number is not that of the table but the version that the sidecar gets."""
    intent_id = f"{commit.intent_id}/{uuid.uuid4().hex}"
    own = replace(commit, seq=version + 1, intent_id=intent_id, target_id=identity)
    return Record(own, app=app_id(commit.lineage, commit.table, purpose))


@dataclass(frozen=True)
class Record:
    """``commit`` has version, counts and warnings only once it is in the table.

    ``attempt``: which attempt at the number this is, for a history, which counts the observations of one attempt only.
    ``data_seq``: for a void and a restoration, the last number that was committed with data. ``restores``: the number
    whose content this one has restored (0: it has its own). ``app``: the application id, if it is
    not the table's own. ``hidden_rows``: how many rows deletion vectors hide from this version on, if the commit has
    counted them: a plan that finds this record as the newest need not read the log.
    """

    commit: Commit = field(metadata=in_json("inline"))
    flowctl: int = _FORMAT
    attempt: str = field(default="", metadata=in_json("not_default"))
    data_seq: int = field(default=0, metadata=in_json("not_default"))
    restores: int = field(default=0, metadata=in_json("not_default"))
    app: str = field(default="", metadata=in_json("not_default"))
    hidden_rows: int = field(default=0, metadata=in_json("not_default"))

    @property
    def seq(self) -> int:
        return self.commit.seq

    @property
    def app_id(self) -> str:
        return self.app or app_id(self.commit.lineage, self.commit.table)

    @property
    def text(self) -> str:
        """As it is stored."""
        return json.dumps(codec.to_json(self))

    def logged(self, **known: Any) -> Record:
        """The record with what is known of its commit once that is in the table."""
        return replace(self, commit=replace(self.commit, **known))

    def warned(self, warning: str) -> Record:
        return self.logged(warnings=(*self.commit.warnings, warning))


def parse(text: str | None) -> Record | None:
    """The record that is stored as ``text``; None for text that flowctl did not write."""
    try:
        document = json.loads(text or "null")
    except ValueError:
        return None
    if not isinstance(document, dict) or document.get("flowctl") != _FORMAT:
        return None
    return codec.from_json(Record, document)


@dataclass(frozen=True)
class DataCommit:
    """The last number that was committed with data, and the attempt that did: what a history's sidecar counts.
    ``attempt`` is empty if no record has it."""

    number: int = 0
    attempt: str = ""


def data_commit(record: Record | None) -> DataCommit:
    """The data commit of ``record``, or, if that has no data of its own, the one it carries along."""
    if record is None:
        return DataCommit()
    return DataCommit(record.data_seq if record.commit.void or record.restores else record.seq, record.attempt)


def counts(metrics: Mapping[str, Any]) -> RowCounts:
    """Metrics of a commit, with Delta's names, as row counts."""

    def number(*names: str) -> int | None:
        return next((int(metrics[name]) for name in names if name in metrics), None)

    return RowCounts(
        read=number("numSourceRows", "numOutputRows"),
        inserted=number("numTargetRowsInserted", "numOutputRows"),
        updated=number("numTargetRowsUpdated"),
        deleted=number("numTargetRowsDeleted", "numDeletedRows"),
        bytes=number("numTargetBytesAdded", "numOutputBytes"),
    )
