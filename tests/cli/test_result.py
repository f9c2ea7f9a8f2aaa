"""How a run's end reads, after `apply` and in `runs RUN`."""

from __future__ import annotations

from dataclasses import replace

import pytest

from flowctl.cli import result
from flowctl.model.commit import RowCounts
from flowctl.state.runs import RunError, RunRecord, TableRun

LOST = RunError("the connection was lost", "Check the server", "flow.yaml:9:3")
TABLES = (
    TableRun("flights", "committed", "merge", 1, rows=RowCounts(336_776, 336_776), seconds=8.0),
    TableRun("a_name_of_more_than_sixty_characters_as_some_systems_generate_them", "committed", "append", 1,
             rows=RowCounts(7, 5, quarantined=2), seconds=0.5, warnings=("expectation age: 2 rows",)),
    TableRun("planes", "unchanged", "scd2"),
    TableRun("orders", "failed", "merge", seconds=1.0, error=LOST),
    TableRun("items", "failed", "merge", seconds=1.0, error=LOST),
    TableRun("invoices", "stopped", "append", error=RunError("the key is gone", "Correct `key`")),
    TableRun("revenue", "skipped", "truncate"),
)  # fmt: skip
RECORD = RunRecord(
    id="20261120T061533Z-1f0c9a",
    flow="shop",
    lineage="4b1f",
    spec_digest="ab12",
    started_at="2026-11-20T06:15:33Z",
    finished_at="2026-11-20T06:15:43.500000Z",
    exit_code=4,
    serial_before=40,
    serial_after=42,
    plan={"format": 1, "steps": []},
    tables=TABLES,
)


def shown(capsys: pytest.CaptureFixture[str], record: RunRecord = RECORD, **terms: list[str]) -> str:
    result.show(record, **terms)
    return capsys.readouterr().out.strip("\n")


def test_a_table_then_failures_with_the_next_step_then_the_run(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys)
    lines = text.splitlines()
    assert max(map(len, lines)) <= 100
    assert lines[0].split() == ["table", "result", "read", "inserted", "quarantined", "rows/s", "seconds"]
    assert lines[1].split() == ["flights", "committed", "336,776", "336,776", "42,097", "8.0"]
    assert "…" in lines[2] and lines[2].split()[1:] == ["committed", "7", "5", "2", "0.5"]
    assert "planes" not in text
    assert "! 2 tables failed: the connection was lost (flow.yaml:9:3)\n    next step  Check the server\n" in text
    assert "    tables     orders, items\n" in text
    assert "! invoices stopped: the key is gone\n    next step  Correct `key`\n" in text
    assert " ".join(text.split()).endswith(
        "run 20261120T061533Z-1f0c9a: 2 failed, 1 stopped, 1 skipped, 2 committed, 1 up to date; "
        "336,783 rows read, 336,781 written; 10.5 s"
    )


def test_one_failure_of_tables_in_several_places_is_told_once(capsys: pytest.CaptureFixture[str]) -> None:
    elsewhere = replace(TABLES[4], error=replace(LOST, where="flow.yaml:10:3"))
    text = shown(capsys, replace(RECORD, tables=(TABLES[3], elsewhere)))
    assert "! 2 tables failed: the connection was lost\n" in text and text.count("the connection was lost") == 1


def test_what_the_plan_has_explained_is_only_counted(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, explained=["invoices"])
    assert "invoices" not in text and "1 stopped" in text


def test_what_ended_the_run_is_told_last(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, replace(RECORD, tables=TABLES[2:3], error=RunError("the lease was lost", "Run again")))
    assert text.splitlines() == [
        "! the run ended: the lease was lost",
        "    next step  Run again",
        "",
        "run 20261120T061533Z-1f0c9a: 1 up to date; 10.5 s",
    ]
