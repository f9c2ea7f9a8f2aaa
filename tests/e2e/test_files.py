"""A folder of CSV files, as people fill it: one of them is wrong, is mended, and the next run goes on."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.flows import Flow, sqlite_rows

FLOW = """\
version: 1
flow: invoices
state: ./state
spark: {{url: "{url}"}}
connections:
  inbox: {{type: files, path: ./inbox}}
  out: {{type: sqlite, path: ./out.db}}
tables:
  invoices:
    from: inbox:*.csv
    to: out
    mode: append
    format: {{delimiter: ";", schema: {{number: int, total: "decimal(12,2)"}}}}
"""


@pytest.fixture
def flow(tmp_path: Path) -> Flow:
    return Flow(tmp_path)


@pytest.mark.parametrize("url", ["local[2]", "sail"])
def test_a_wrong_file_stops_its_table_until_it_is_mended(flow: Flow, url: str) -> None:
    flow.write(FLOW.format(url=url))
    inbox = flow.folder / "inbox"
    inbox.mkdir()
    (inbox / "1.csv").write_text("number;total\n1;1.50\n2;\n")
    (inbox / "2.csv").write_text("number;total\n3;2.25\n4;many\n")
    failed = flow.apply(expect=4)
    assert "2.csv line 3: column total holds a value that is not exactly decimal(12,2)" in failed.err + failed.out
    assert "many" not in failed.err + failed.out

    (inbox / "2.csv").write_text("number;total\n3;2.25\n4;3.00\n")
    (step,) = flow.plan()["steps"]
    assert step["action"] in ("create", "change") and "is given up" in step["notes"][0]
    flow.apply()
    assert _rows(flow.folder) == [(1, "1.50"), (2, None), (3, "2.25"), (4, "3.00")]

    (inbox / "3.csv").write_text("number;total\n5;1\n")
    flow.apply()
    flow.apply()
    assert _rows(flow.folder)[4:] == [(5, "1.00")]


def _rows(folder: Path) -> list[tuple[object, ...]]:
    return sqlite_rows(folder / "out.db", "SELECT number, total FROM invoices")
