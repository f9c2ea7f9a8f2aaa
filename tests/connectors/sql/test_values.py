"""Stored values of any type as columns of one type."""

from __future__ import annotations

import decimal
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from flowctl.connectors.sql.values import Misfit, order_key, to_arrow
from flowctl.model.types import Decimal

KIND = Decimal(38, 9)
NUMBERS = st.none() | st.integers(-(2**63), 2**63 - 1) | st.floats() | st.decimals(-(10**38), 10**38, places=9).map(str)


@given(st.lists(NUMBERS, max_size=5))
@example([2**53 + 1, 0.5])  # no float is equal to the integer
@example([1, 0.1, None])
@example(["99999999999999999999999999999999999999"])  # 47 digits
@example([2.316968527929002e-223])
@example([None, 1.5e-77, "0e-77"])
@example(["1.5e-77", "x"])
@example(["1.10", 2, 2.5])
def test_decimals_are_exact_whatever_they_are_stored_as(stored: list[Any]) -> None:
    expected = [_exactly(value) for value in stored]
    if any(value is NOT_A_DECIMAL for value in expected):
        with pytest.raises(Misfit):
            to_arrow(stored, KIND)
    else:
        assert to_arrow(stored, KIND).to_pylist() == expected


@pytest.mark.parametrize("stored", ["x", "", "inf", "nan", "1e999999999999999999", "1e999990", b"1"])
def test_what_has_no_place_in_an_order_is_a_value_error(stored: Any) -> None:
    with pytest.raises(ValueError):
        order_key(KIND, stored)


NOT_A_DECIMAL = object()


def _exactly(value: Any) -> Any:
    """A float is the shortest decimal that reads back as the same float."""
    if value is None:
        return None
    try:
        exact = decimal.Decimal(value if isinstance(value, str) else repr(value))
    except decimal.InvalidOperation:
        return NOT_A_DECIMAL
    if not exact.is_finite():
        return NOT_A_DECIMAL
    with decimal.localcontext(prec=400):
        fits = exact == round(exact, KIND.scale) and abs(exact) < 10 ** (KIND.precision - KIND.scale)
    return exact if fits else NOT_A_DECIMAL
