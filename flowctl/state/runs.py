"""Run records: ``runs/<run id>.json``, one per run, written once at its end. No secrets, no row values.

A run that has something to do first creates ``runs/<run id>.begun``, which its record replaces: this distinguishes runs
that were killed from runs that never started.
"""

from __future__ import annotations

import datetime as dt
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from flowctl.errors import AbortRun
from flowctl.model import codec
from flowctl.model.commit import RowCounts
from flowctl.model.interval import Interval
from flowctl.redaction import REDACTOR
from flowctl.storage.blobs import BlobStore

FORMAT = 1
FOLDER = "runs/"
#: A week of one run per minute.
KEPT_RUNS = 10_000
_BEGUN = ".begun"
_KEPT_BEGUN = 1_000
#: Keys of a record, and values from the source's rows: they never contain a connection's options.
_KEPT_AS_THEY_ARE = (
    "id", "flow", "lineage", "spec_digest", "started_at", "finished_at", "outcome", "mode", "interval",
)  # fmt: skip
Outcome = Literal["committed", "unchanged", "failed", "stopped", "skipped"]


@dataclass(frozen=True)
class RunError:
    """As reported: what is wrong, the next step, and the spec line (``file:line:column``) if there is one."""

    message: str
    hint: str = ""
    where: str = ""


@dataclass(frozen=True)
class TableRun:
    """What one run did to one table. ``seconds`` is wall time; ``seq`` is 0 if no sequence number was started."""

    id: str
    outcome: Outcome
    mode: str
    seq: int = 0
    interval: Interval | None = None
    rows: RowCounts = RowCounts()
    seconds: float = 0.0
    error: RunError | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True)
class RunRecord:
    """``plan`` is the plan's own JSON. ``serial_before`` and ``serial_after`` are serials of the state log. Times are
    RFC 3339 in UTC. ``versions`` maps packages (flowctl, pyspark, delta-spark) to versions. ``error`` is what ended the
    whole run."""

    id: str
    flow: str
    lineage: str
    spec_digest: str
    started_at: str
    finished_at: str
    exit_code: int
    serial_before: int
    serial_after: int
    plan: Mapping[str, Any]
    tables: tuple[TableRun, ...] = ()
    versions: Mapping[str, str] = field(default_factory=dict)
    error: RunError | None = None

    def count(self, outcome: Outcome) -> int:
        return sum(table.outcome == outcome for table in self.tables)

    def to_json(self) -> dict[str, Any]:
        """As defined by `schemas/run.schema.json`."""
        return {"format": FORMAT, **codec.to_json(self)}


@dataclass(frozen=True)
class BegunRun:
    """A run without a recorded end. ``tables`` are the ids of the tables that it was going to update."""

    id: str
    flow: str
    started_at: str
    tables: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        return {"format": FORMAT, **codec.to_json(self)}


def new_run_id() -> str:
    """Sorts by time: ``20261120T061533Z-1f0c9a``."""
    return f"{dt.datetime.now(dt.UTC):%Y%m%dT%H%M%SZ}-{uuid.uuid4().hex[:6]}"


def put_run(blobs: BlobStore, record: RunRecord) -> None:
    """Adds a record. Runs that committed something delete the oldest records beyond :data:`KEPT_RUNS`; the others take
    a second, and should not take longer."""
    for name in _names(blobs, ".json")[KEPT_RUNS - 1 :] if record.count("committed") else ():
        blobs.delete(name)
    document = REDACTOR.redact_all(record.to_json(), _KEPT_AS_THEY_ARE)
    data = json.dumps(document, indent=2, ensure_ascii=False) + "\n"
    blobs.create(_name(record.id), data.encode())
    if record.count("unchanged") < len(record.tables) or record.error:
        blobs.delete(f"{FOLDER}{record.id}{_BEGUN}")


def put_begun(blobs: BlobStore, run: BegunRun) -> None:
    """Records that a run starts; must be called before it does anything. Markers of killed runs beyond a thousand are
    deleted."""
    for name in _names(blobs, _BEGUN)[_KEPT_BEGUN - 1 :]:
        blobs.delete(name)
    blobs.create(f"{FOLDER}{run.id}{_BEGUN}", (json.dumps(run.to_json(), ensure_ascii=False) + "\n").encode())


def list_begun(blobs: BlobStore) -> list[BegunRun]:
    """Runs without a recorded end, newest first: active, or killed."""
    ended = {name.removesuffix(".json") for name in _names(blobs, ".json")}
    begun = [name for name in _names(blobs, _BEGUN) if name.removesuffix(_BEGUN) not in ended]
    return [found for name in begun if (found := _begun(blobs.get(name)))]


def run_ids(blobs: BlobStore) -> frozenset[str]:
    """The ids of all kept runs: ended, active and killed."""
    return frozenset(info.name.removeprefix(FOLDER).rpartition(".")[0] for info in blobs.list(FOLDER))


def get_run(blobs: BlobStore, run_id: str) -> RunRecord | None:
    data = blobs.get(_name(run_id))
    return _decode(data, f"{blobs.url}/{_name(run_id)}") if data is not None else None


def list_runs(blobs: BlobStore, limit: int) -> list[RunRecord]:
    """The newest ``limit`` runs that have ended, newest first."""
    found = (get_run(blobs, name.removeprefix(FOLDER).removesuffix(".json")) for name in _names(blobs, ".json")[:limit])
    return [record for record in found if record is not None]


def _begun(data: bytes | None) -> BegunRun | None:
    """None if the run has ended in the meantime, or its marker cannot be read and so has no useful content."""
    try:
        return codec.from_json(BegunRun, json.loads(data)) if data is not None else None
    except (ValueError, KeyError, TypeError):
        return None


def _names(blobs: BlobStore, suffix: str) -> list[str]:
    """The blobs that end in ``suffix``, newest first."""
    return sorted((info.name for info in blobs.list(FOLDER) if info.name.endswith(suffix)), reverse=True)


def _name(run_id: str) -> str:
    return f"{FOLDER}{run_id}.json"


def _decode(data: bytes, place: str) -> RunRecord:
    try:
        return codec.from_json(RunRecord, json.loads(data))
    except (ValueError, KeyError, TypeError) as cause:
        raise AbortRun(
            f"run record {place} cannot be read ({type(cause).__name__}: {cause})",
            hint="Leave it, or delete it: a newer flowctl wrote it, or it is damaged; only the history is affected",
        ) from cause
