"""A package that only some flows need and that is not there: what to install, and nothing of a defect."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from flowctl import extras
from flowctl.cli.main import _unforeseen
from flowctl.errors import TableError
from flowctl.run.failure import translate

SPEC = """
version: 1
flow: shop
state: {state}
spark: {{url: sail}}
connections:
  app: {{type: sqlite, path: app.db}}
  target: {target}
tables:
  orders: {{from: app:orders, to: target, mode: truncate}}
"""
POSTGRES = '{type: postgres, url: "postgresql://etl@localhost:1/shop"}'
DUCKDB = "{type: duckdb, path: target.duckdb}"
SECRET = '{{type: sqlite, path: "${{secret:{}}}"}}'
DELTA = "{type: delta, path: lake}"
#: The package that is not there, what pip installs, the state, the target, the command and its exit code.
CASES = {
    "postgres": ("psycopg", "flowctl[postgres]", "state", POSTGRES, "plan", 4),
    "duckdb": ("duckdb", "flowctl[duckdb]", "state", DUCKDB, "plan", 4),
    "delta": ("deltalake", "flowctl[delta]", "state", DELTA, "plan", 4),
    "sail": ("pysail", "flowctl[sail]", "state", DELTA, "apply", 1),
    "s3": ("s3fs", "flowctl[s3]", "s3://bucket/state", DELTA, "plan", 1),
    "vault": ("hvac", "flowctl[vault]", "state", SECRET.format("vault:secret/x"), "plan", 4),
    "aws": ("boto3", "flowctl[aws-secrets]", "state", SECRET.format("aws:x"), "plan", 4),
    "google": ("google", "flowctl[gcp-secrets]", "state", SECRET.format("gcp:x"), "plan", 4),
    "key vault": ("azure", "flowctl[azure-secrets]", "state", SECRET.format("azure:v/x"), "plan", 4),
    "gcs": ("gcsfs", "flowctl[gcs]", "gs://bucket/state", DELTA, "plan", 1),
    "azure": ("adlfs", "flowctl[azure]", "abfss://c@account.dfs.core.windows.net/state", DELTA, "plan", 1),
}
FULL = ("gcs", "azure", "aws", "google", "key vault")
#: As if the first argument's packages were not installed.
PROBE = """
import sys
blocked = set(sys.argv[1].split(","))
class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in blocked:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Blocker())
from flowctl.cli.main import main
main(sys.argv[2:])
"""


@pytest.mark.parametrize("case", [pytest.param(case, marks=pytest.mark.full if case in FULL else ()) for case in CASES])
def test_it_says_what_to_install(case: str, tmp_path: Path) -> None:
    package, extra, state, target, command, code = CASES[case]
    database = sqlite3.connect(tmp_path / "app.db")
    database.executescript("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
    database.close()
    (tmp_path / "flow.yaml").write_text(SPEC.format(state=state, target=target))
    done = subprocess.run(
        [sys.executable, "-c", PROBE, package, command, "flow.yaml"],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    shown = done.stdout + done.stderr
    assert done.returncode == code, shown
    assert f'pip install "{extra}"' in shown and "is not installed" in shown, shown
    for foreign in ("defect", "Traceback", "ModuleNotFoundError"):
        assert foreign not in shown, shown


def test_what_a_run_misses() -> None:
    try:
        import not_there_at_all  # noqa: F401
    except ImportError as error:
        assert "defect" in _unforeseen(error).message  # no package of ours
    error = translate(ModuleNotFoundError("No module named 'pyroaring'"), None)
    assert error.message == "pyroaring is not installed here"
    assert error.hint == 'Install it: pip install "flowctl[delta]"'
    assert extras.missing_package("no pq wrapper available.\nAttempts made: …") == "psycopg_binary"
    worker = (
        'Job aborted due to stage failure\nTraceback (most recent call last):\n  File "x.py", line 1, in f\n'
        "ModuleNotFoundError: No module named 'psycopg'\n"
    )
    error = translate(RuntimeError(worker), None)
    assert isinstance(error, TableError) and "Spark's executors" in error.message and "postgres" in error.hint


def test_names_of_packages_are_looked_up_without_loading_them() -> None:
    assert extras.is_installed("psycopg") and not extras.is_installed("not_there") and not extras.is_installed("a.b")
