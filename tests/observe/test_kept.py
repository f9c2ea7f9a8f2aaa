"""What is kept (saved plans, run records) holds no secret, and a saved plan is still the plan."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flowctl.plan import planfile
from flowctl.plan.planning import make_plan
from flowctl.resolve.resolve import PlanOptions
from flowctl.run.apply import ApplyOptions, Audience, apply
from flowctl.spec.load import load_spec
from tests.plan.worlds import statements

SECRET = "planted in a path"
SPEC = """
version: 1
flow: shop
state: state
connections:
  db: {type: sqlite, path: "${secret:env:PLANTED}/gone.db"}
  inbox: {type: files, path: "${secret:env:PLANTED}"}
  lake: {type: delta, path: "${secret:env:PLANTED}/lake"}
tables:
  orders: {from: "db:orders", to: lake, mode: truncate}
  files: {from: "inbox:*.csv", to: lake, mode: append}
"""


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PLANTED", SECRET)
    (tmp_path / SECRET).mkdir()
    (tmp_path / SECRET / "a.csv").write_text("id\n1\n")
    (tmp_path / "flow.yaml").write_text(SPEC)
    return load_spec([tmp_path / "flow.yaml"], {})


def test_a_saved_plan_has_no_secret_and_is_the_plan(spec, tmp_path: Path) -> None:
    planned = make_plan(spec, PlanOptions())
    steps = {step.id: step for step in planned.plan.steps}
    assert "gone.db" in steps["orders"].reason and statements(steps["files"])
    planfile.save(planned.plan, tmp_path / "plan.json")
    assert SECRET not in (tmp_path / "plan.json").read_text()
    assert planfile.load(tmp_path / "plan.json") == planned.plan
    planfile.check_fresh(planned.plan, spec, planned.world, planned.tables)


def test_a_run_record_has_no_secret(spec, tmp_path: Path) -> None:
    (tmp_path / SECRET / "a.csv").unlink()  # nothing is left that could run, so no engine starts
    result = apply(spec, ApplyOptions(PlanOptions()), Audience(lambda _: True, lambda _: None, lambda _: None))
    assert result.error is None and result.record is not None
    (record,) = (tmp_path / "state" / "shop" / "runs").glob("*.json")
    kept = json.loads(record.read_text())
    assert "gone.db" in kept["tables"][0]["error"]["message"] + kept["tables"][1]["error"]["message"]
    for file in (tmp_path / "state").rglob("*"):
        assert not file.is_file() or SECRET.encode() not in file.read_bytes(), file
