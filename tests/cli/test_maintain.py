"""What `flowctl maintain` shows of what is due, left out and done."""

from __future__ import annotations

import dataclasses

from flowctl import text
from flowctl.cli import maintain
from flowctl.connectors.maintenance import Maintenance, Task
from flowctl.errors import ExitCode, StoppedByPolicy, TransientError
from flowctl.model.table_info import ObjectName
from flowctl.run.maintain import DueTable, MaintenancePlan, MaintenanceResult, TableMaintained
from tests.plan.worlds import table

ORDERS, SIDECAR, ITEMS = (ObjectName((name,)) for name in ("orders", "orders__quarantine", "items"))
COMPACT = Task("compact", "2,000 files become about 1; 41.2 MB written again", {"files": 2000, "files_after": 1})
VACUUM = Task("vacuum", "3 files (120 B) that no version of the last 7 days needs", {"files": 3, "bytes": 120})
DUE = DueTable(table(), ORDERS, Maintenance(ORDERS, (COMPACT, VACUUM)))
BLOCKED = DueTable(
    table(), SIDECAR, Maintenance(SIDECAR, left_out="compaction needs Spark (the Delta feature clustering)")
)
BEGUN = DueTable(
    dataclasses.replace(table(), id="items"),
    ITEMS,
    Maintenance(ITEMS, (VACUUM,)),
    StoppedByPolicy("items: sequence number 3, begun by run r, is not finished", hint="Run `flowctl apply s` first"),
)
PLAN = MaintenancePlan((DUE, BLOCKED, BEGUN), others=17)


def test_what_is_due_and_what_is_left_out() -> None:
    assert text.plain(maintain._plan_lines(PLAN, 100)) == (
        "~ lake:orders\n"
        "    compact    2,000 files become about 1; 41.2 MB written again\n"
        "    vacuum     3 files (120 B) that no version of the last 7 days needs\n"
        "~ lake:orders__quarantine\n"
        "    left out   compaction needs Spark (the Delta feature clustering)\n"
        "! lake:items\n"
        "    because    items: sequence number 3, begun by run r, is not finished\n"
        "    next step  Run `flowctl apply s` first\n"
        "Tables: 1 due, 2 left out, 17 with nothing due."
    )
    assert [one.object for one in PLAN.runnable] == [ORDERS]


def test_nothing_is_due_or_there() -> None:
    assert text.plain(maintain._plan_lines(MaintenancePlan((), 3), 80)) == "Tables: 3 with nothing due."
    assert text.plain(maintain._plan_lines(MaintenancePlan((), 0), 80)) == "There are no tables in Delta or Iceberg."


def test_a_table_that_failed_has_its_error_and_decides_the_exit_code() -> None:
    failed = TableMaintained(DUE, (), TransientError("another writer commits too fast", hint="Run again"))
    result = MaintenanceResult(PLAN, approved=True, tables=(failed,))
    assert text.plain(maintain._result_lines(result, 100)) == (
        "! lake:orders\n"
        "    because    another writer commits too fast\n"
        "    next step  Run again\n"
        "0 tables maintained, 1 failed."
    )
    assert result.exit_code == ExitCode.TABLE
    assert (
        MaintenanceResult(PLAN, approved=True, tables=(TableMaintained(DUE, (COMPACT,)),)).exit_code == ExitCode.STOPPED
    )
    assert MaintenanceResult(MaintenancePlan((BLOCKED,), 0)).exit_code == ExitCode.OK


def test_the_json_tells_each_tables_end() -> None:
    done = TableMaintained(DUE, (COMPACT, VACUUM))
    found = maintain._to_json(MaintenanceResult(PLAN, approved=True, tables=(done,)))
    orders, sidecar, items = found["tables"]
    assert orders["done"] == [{"task": "compact", "text": COMPACT.text, "files": 2000, "files_after": 1},
                              {"task": "vacuum", "text": VACUUM.text, "files": 3, "bytes": 120}]  # fmt: skip
    assert (sidecar["due"], sidecar["left_out"]) == ([], "compaction needs Spark (the Delta feature clustering)")
    assert items["error"]["hint"] == "Run `flowctl apply s` first"
    assert found["nothing_due"] == 17
