"""`flowctl cuts` where no target keeps versions."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowctl.cli import main

SPEC = """
version: 1
flow: shop
state: state
spark: {url: sail}
connections:
  source: {type: postgres, url: "postgresql://etl@127.0.0.1:1/shop"}
  lite: {type: sqlite, path: lite.db}
  lake: {type: delta, path: lake}
streams:
  cdc: {from: source}
tables:
  orders: {from: cdc:public.orders, to: lite:orders, mode: merge}
"""


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("", "cdc  no cuts: they are for tables on Delta, and these are in lite (sqlite)\n"),
        (
            "  lines: {from: cdc:public.lines, to: lake:lines, mode: merge}\n",
            "cdc  no cut yet: `flowctl apply flow.yaml` writes one after each commit\n",
        ),
    ],
)
def test_it_says_whether_there_will_be_one(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    more: str,
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "lite.db").touch()
    Path("flow.yaml").write_text(SPEC + more)
    assert main.run(["cuts", "flow.yaml", "cdc"]) == 0
    assert capsys.readouterr().out == said
