"""Changes by their order in the source, written by Spark's own statements."""

from __future__ import annotations

import pytest

from flowctl.connectors.delta import target
from flowctl.connectors.delta.choice import Choice, Way
from tests.connectors.test_target_order import (
    must_count_what_is_left_out,
    must_keep_orders_of_deleted_rows,
    must_leave_out_what_is_older,
)
from tests.connectors.writing import Writer

pytestmark = [pytest.mark.full, pytest.mark.needs("Delta's own statements")]


def test_statements_leave_out_what_is_older(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "choose", lambda *given: Choice(Way.STATEMENTS))
    must_leave_out_what_is_older(writer)


def test_statements_count_what_is_older(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "choose", lambda *given: Choice(Way.STATEMENTS))
    must_count_what_is_left_out(writer)


def test_statements_keep_the_order_of_deleted_rows(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target, "choose", lambda *given: Choice(Way.STATEMENTS))
    must_keep_orders_of_deleted_rows(writer)
