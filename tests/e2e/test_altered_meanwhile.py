"""A column of the target that somebody alters while a run reads: the run stops, and changes no value."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.flows import Flow, end_of_stopped, sqlite_script, wait_until_stopped
from tests.e2e.orders import SPEC
from tests.e2e.targets import ENV, Databases, Kind, SqlPlace, place

MODES = {
    "append": "mode: append, cursor: {column: id}",
    "truncate": "mode: truncate",
    "merge": "mode: merge, key: [id], cursor: {column: id}",
}
ROW = "INSERT INTO orders SELECT 1 + count(*), '2.55', '2026-01-01 10:00:00.6' FROM orders"


@pytest.mark.parametrize(
    ("kind", "mode", "alter", "altered"),
    [
        pytest.param("postgres", "append", "ALTER COLUMN price TYPE numeric(12,0)", "price", marks=pytest.mark.full),
        pytest.param("postgres", "merge", "ALTER COLUMN at TYPE date", "at", marks=pytest.mark.full),
        pytest.param("postgres", "truncate", "ALTER COLUMN price TYPE real", "price", marks=pytest.mark.full),
        pytest.param("duckdb", "merge", "ALTER price TYPE DECIMAL(12,0)", "price", marks=pytest.mark.full),
        ("duckdb", "truncate", 'ALTER "at" TYPE TIMESTAMP_S', "at"),
        pytest.param("mysql", "append", "MODIFY price DECIMAL(12,0)", "price", marks=pytest.mark.full),
    ],
)
def test_a_column_altered_after_the_plan_stops_the_run(
    kind: Kind, mode: str, alter: str, altered: str, tmp_path: Path, databases: Databases
) -> None:
    flow, target = Flow(tmp_path, ENV), place(kind, tmp_path, databases)
    assert isinstance(target, SqlPlace)
    sqlite_script(
        tmp_path / "source.db",
        "CREATE TABLE orders (id INTEGER PRIMARY KEY, price DECIMAL(12,2), at TIMESTAMP);"
        "INSERT INTO orders VALUES (1, '1.00', '2026-01-01 09:00:00')",
    )
    given = {"connection": target.connection, "object": target.object, "mode": MODES[mode]}
    flow.write(SPEC.format(state="state: state", spark="sail", **given))
    flow.apply()
    sqlite_script(tmp_path / "source.db", ROW)
    stopped = flow.start(
        "apply", "flow.yaml", env={"FLOWCTL_CRASH_AT": "after_intent", "FLOWCTL_CRASH_WITH": "SIGSTOP"}
    )
    wait_until_stopped(stopped)
    target.run(f"ALTER TABLE {{table}} {alter}")
    out, err = end_of_stopped(stopped)
    assert stopped.returncode == 6, out + err
    assert f"column {altered} of" in err and "was altered since the plan was made" in err
    assert target.rows(["id"]) == [(1,)]
