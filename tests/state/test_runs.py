"""Run records in the store, and the schema they are published with."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from flowctl.errors import AbortRun
from flowctl.model.commit import RowCounts
from flowctl.model.interval import Interval
from flowctl.state import runs
from flowctl.state.runs import (
    BegunRun,
    RunError,
    RunRecord,
    TableRun,
    get_run,
    list_begun,
    list_runs,
    new_run_id,
    put_begun,
    put_run,
)
from flowctl.storage.blobs import BlobStore
from tests.state.examples import at

SCHEMA = json.loads((Path(__file__).parents[2] / "schemas" / "run.schema.json").read_text())


def record(run_id: str = "20261120T061533Z-1f0c9a") -> RunRecord:
    return RunRecord(
        id=run_id,
        flow="shop",
        lineage="4b1f",
        spec_digest="ab12",
        started_at="2026-11-20T06:15:33Z",
        finished_at="2026-11-20T06:15:40Z",
        exit_code=4,
        serial_before=40,
        serial_after=42,
        plan={"format": 1, "steps": []},
        tables=(
            TableRun("orders", "committed", "merge", 7, Interval(at(19), at(20)), RowCounts(read=5, updated=3), 2.5),
            TableRun("invoices", "failed", "append", error=RunError("no such file", "Check the path", "shop.yaml:9:3")),
            TableRun("revenue", "skipped", "truncate", warnings=("invoices failed",)),
        ),
        versions={"flowctl": "0.1.0", "spark": "4.1.1"},
        error=RunError("the lease was lost"),
    )


def test_a_record_is_read_back_as_it_was(blobs: BlobStore) -> None:
    put_run(blobs, record())
    assert get_run(blobs, record().id) == record()
    assert get_run(blobs, "20261120T061533Z-000000") is None


def test_a_run_without_an_end_is_told_from_one_that_ended(blobs: BlobStore) -> None:
    begun = BegunRun(record().id, "shop", "2026-11-20T06:15:33Z", ("orders", "invoices"))
    killed = replace(begun, id="20261119T061533Z-1f0c9a")
    for run in (begun, killed):
        put_begun(blobs, run)
    assert list_begun(blobs) == [begun, killed]
    assert list_runs(blobs, limit=5) == []
    put_run(blobs, record())
    assert (list_begun(blobs), [found.id for found in list_runs(blobs, limit=5)]) == ([killed], [record().id])


def test_runs_are_listed_newest_first(blobs: BlobStore) -> None:
    ids = [f"2026112{day}T061533Z-1f0c9a" for day in range(5)]
    for run_id in ids:
        put_run(blobs, record(run_id))
    assert [found.id for found in list_runs(blobs, limit=3)] == ids[:1:-1]


def test_the_oldest_records_go_when_a_run_had_something_to_do(
    blobs: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(runs, "KEPT_RUNS", 2)
    ids = [f"2026112{day}T061533Z-1f0c9a" for day in range(4)]
    for run_id in ids[:3]:
        put_run(blobs, replace(record(run_id), tables=()))
    assert [found.id for found in list_runs(blobs, limit=9)] == ids[2::-1]
    put_run(blobs, record(ids[3]))
    assert [found.id for found in list_runs(blobs, limit=9)] == ids[:1:-1]


def test_a_record_is_as_its_schema_says() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    jsonschema.validate(record().to_json(), SCHEMA)
    jsonschema.validate({**record().to_json(), "id": new_run_id()}, SCHEMA)


def test_every_property_is_described() -> None:
    table = SCHEMA["$defs"]["table"]["properties"]
    assert all("description" in found for found in (*SCHEMA["properties"].values(), *table.values()))


def test_a_damaged_record_is_named(blobs: BlobStore) -> None:
    blobs.create("runs/20261120T061533Z-1f0c9a.json", b"{}")
    with pytest.raises(AbortRun, match=r"runs/20261120T061533Z-1f0c9a\.json cannot be read"):
        list_runs(blobs, limit=1)
