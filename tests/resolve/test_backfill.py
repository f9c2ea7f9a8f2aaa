"""Ranges are of tables that are polled."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowctl.errors import UsageError
from flowctl.model.backfill import Backfill
from flowctl.resolve.resolve import PlanOptions, resolve
from flowctl.spec.load import load_spec

SPEC = """
version: 1
flow: shop
state: state
connections:
  pg: {type: postgres, host: db, database: shop}
  lake: {type: delta, path: lake}
streams:
  cdc: {from: pg}
defaults: {to: lake}
tables:
  captured: {from: cdc:public.captured, mode: merge}
  polled: {from: pg:public.polled, mode: merge, key: [id], cursor: {column: at}}
"""


def test_a_table_of_a_stream_has_no_ranges(tmp_path: Path) -> None:
    (tmp_path / "flow.yaml").write_text(SPEC)
    spec, range = load_spec([tmp_path / "flow.yaml"], {}), Backfill("2026-10-01")
    assert resolve(spec, {}, PlanOptions(select=("polled",), backfill=range)).backfill == range
    with pytest.raises(UsageError, match="--from 2026-10-01: captured reads a change stream, which has no ranges"):
        resolve(spec, {}, PlanOptions(select=("*",), backfill=range))
