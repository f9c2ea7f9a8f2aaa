"""A Delta table of many small files is told of in the plan; looking costs no more than the plan reads anyway."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flowctl.connectors.delta import CAPABILITIES, maintenance
from flowctl.connectors.delta.maintenance import MANY, SMALL
from flowctl.connectors.delta.target import DeltaTarget
from flowctl.connectors.delta.types import schema_json
from flowctl.model import types
from flowctl.model.table_info import Column, ObjectName, TableInfo
from tests.plan.worlds import (
    NEW,
    OLD,
    REFRESH,
    LakeDdl,
    high,
    observed,
    plan,
    recorded,
    table,
    unchanged_target,
    world,
)

COLUMNS = (Column("id", types.INT64), Column("day", types.STRING))


def described(root: Path, sizes: list[int], days: list[str] | None = None) -> TableInfo:
    """A table of files of these sizes, one of each of ``days``; its log is all that is asked."""
    metadata = {
        "id": "t", "format": {"provider": "parquet", "options": {}}, "schemaString": schema_json(COLUMNS),
        "partitionColumns": ["day"] if days else [], "configuration": {}, "createdTime": 0,
    }  # fmt: skip
    actions = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": metadata}]
    for at, size in enumerate(sizes):
        values = {"day": days[at]} if days else {}
        file = {"path": f"{at}.parquet", "partitionValues": values, "size": size, "modificationTime": 0}
        actions.append({"add": {**file, "dataChange": True, "stats": '{"numRecords": 1}'}})
    log = root / "t" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text("".join(json.dumps(action) + "\n" for action in actions))
    found = DeltaTarget(str(root), {}, None, CAPABILITIES).describe([ObjectName(("t",))])[ObjectName(("t",))]
    assert found is not None
    return found


@pytest.mark.parametrize(
    "sizes, days, is_due",
    [
        ([1000] * (MANY + 2), None, True),
        ([1000] * MANY, None, False),
        ([1000] * MANY + [SMALL] * 100, None, False),
        ([1000] * (MANY + 100), [str(at) for at in range(MANY + 100)], False),
        ([1000] * (MANY + 100), [str(at % 10) for at in range(MANY + 100)], True),
    ],
    ids=["many small", "some small", "many large", "one in each partition", "many in each partition"],
)
def test_maintenance_is_due_where_files_could_be_fewer(
    tmp_path: Path, sizes: list[int], days: list[str] | None, is_due: bool
) -> None:
    told = maintenance.due(described(tmp_path, sizes, days))
    assert ("OPTIMIZE" in told) == is_due
    assert told == "" or f"{MANY + 1:,} small files" in told or f"{MANY + 90:,} small files" in told


class Untidy(LakeDdl):
    def maintenance_due(self, info: TableInfo) -> str:
        return "due for maintenance"


def test_the_plan_has_it_with_a_change_that_keeps_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = table()
    seen = world({"orders": observed(high(NEW), **unchanged_target())}, {"orders": recorded(spec, OLD)})
    assert "due for maintenance" not in plan(seen, spec).steps[0].notes
    monkeypatch.setitem(seen.ddl, "lake", Untidy())
    assert "due for maintenance" in plan(seen, spec).steps[0].notes
    assert "due for maintenance" not in plan(seen, spec, request=REFRESH).steps[0].notes
