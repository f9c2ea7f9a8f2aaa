"""Bounds as people write them, and as they may give them back."""

from __future__ import annotations

import pytest

from flowctl.model import types
from flowctl.model.types import DataType
from flowctl.model.value import from_text


@pytest.mark.parametrize(
    ("kind", "exact", "readable"),
    [
        (types.TIMESTAMP, "2026-11-20T06:15:33.001000Z", "2026-11-20 06:15:33.001 UTC"),
        (types.TIMESTAMP, "2026-11-20T06:15:30Z", "2026-11-20 06:15:30 UTC"),
        (types.TIMESTAMP, "2026-11-20T06:00:00Z", "2026-11-20 06:00 UTC"),
        (types.TIMESTAMP, "0001-01-01T00:00:00Z", "0001-01-01 00:00 UTC"),
        (types.TIMESTAMP_NTZ, "2026-11-20T00:00:00.100000", "2026-11-20 00:00:00.1"),
        (types.DATE, "2026-11-20", "2026-11-20"),
        (types.STRING, "A 00:00", "A 00:00"),
        (types.Decimal(12, 2), "100.00", "100.00"),
    ],
)
def test_a_readable_bound_is_the_same_bound(kind: DataType, exact: str, readable: str) -> None:
    assert from_text(kind, exact).readable() == readable
    assert from_text(kind, readable) == from_text(kind, exact)
