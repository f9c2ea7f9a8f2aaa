"""Partitions that have come or gone since the last commit: which of them stop a stream's table. Pure."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from flowctl.model.step import Advance, Load, Stopped, StreamStep
from flowctl.plan.definition import definition
from flowctl.plan.partitions import Moved, moved_partitions
from tests.plan.stream_worlds import STREAM, info, joined, running, seen, step_of, stream_plan, stream_table

ORDERS_TABLE = stream_table("orders")


def part(id: str, file: str = "", *, is_empty: bool = False, brings_rows: bool = False) -> dict[str, str | bool]:
    return {"id": id, "file": file or id, "is_empty": is_empty, "brings_rows": brings_rows}


#: One that has rows from before it was attached stays as it is once it was read.
BEFORE = {"p1": part("11"), "p2": part("12", brings_rows=True), "p3": part("13", is_empty=True)}


def moved(now: dict[str, Any], before: dict[str, Any] | None = None) -> Moved:
    known = definition(ORDERS_TABLE, info("orders", partitions=before if before is not None else BEFORE))
    return moved_partitions(known, info("orders", partitions=now))


@pytest.mark.parametrize(
    ("now", "expected"),
    [
        ({}, Moved()),
        ({"p4": part("14")}, Moved()),
        ({"p4": part("14", is_empty=True)}, Moved()),
        ({"p4": part("14", brings_rows=True)}, Moved(come=("p4 was attached with rows",))),
        ({"p1": None}, Moved(gone=("p1 was detached or dropped",))),
        ({"p3": None}, Moved(gone=("p3 was detached or dropped",))),
        ({"p1": None, "renamed": part("11")}, Moved()),
        ({"p1": part("9/11", brings_rows=True)}, Moved(gone=("p1 was detached and attached again",))),
        ({"p1": part("15")}, Moved(gone=("p1 was detached and attached again",))),
        ({"p1": part("11", "21", is_empty=True)}, Moved(gone=("p1 was truncated",))),
        ({"p1": part("11", "21")}, Moved(unclear=("p1",))),
        ({"p1": part("11", "21"), "p2": part("12", "22"), "p3": part("13", "23")}, Moved()),
    ],
    ids=["same", "created", "empty", "attached", "gone", "gone empty", "renamed", "again", "made again", "truncated",
         "rewritten", "all"],
)  # fmt: skip
def test_what_has_moved(now: dict[str, Any], expected: Moved) -> None:
    assert moved({name: one for name, one in {**BEFORE, **now}.items() if one is not None}) == expected


def test_a_truncate_of_the_only_partition_may_be_one_of_the_table() -> None:
    assert moved({"p1": part("11", "21", is_empty=True)}, {"p1": part("11")}) == Moved(unclear=("p1",))


def test_nothing_is_known_of_what_was_recorded_before() -> None:
    now = info("orders", partitions={"p1": part("11", brings_rows=True)})
    assert moved_partitions(definition(ORDERS_TABLE, info("orders")), now) == Moved()
    assert moved_partitions(definition(ORDERS_TABLE, now), info("orders")) == Moved()


def planned(now: dict[str, Any], on_truncate: str = "apply", **state: Any) -> StreamStep:
    observed, recorded = joined(ORDERS_TABLE, 4)
    before = definition(ORDERS_TABLE, info("orders", partitions=BEFORE))
    recorded = replace(recorded, definition=before, **state)
    observed = replace(observed, source=seen(ORDERS_TABLE, info("orders", partitions=now)).source)
    made = stream_plan(
        running({"orders": recorded}), [(ORDERS_TABLE, observed)], replace(STREAM, on_truncate=on_truncate)
    )
    return step_of(made, "orders")


def test_the_next_steps() -> None:
    step = planned({"p2": BEFORE["p2"], "p3": BEFORE["p3"], "p4": part("14", brings_rows=True)})
    assert isinstance(step, Stopped)
    assert step.reason == (
        "partitions of cdc:public.orders changed, and the log does not have their rows: p1 was detached or dropped, "
        "p4 was attached with rows"
    )
    assert step.hint == (
        "`flowctl state resnapshot spec.yaml orders` reads it again; `flowctl state set spec.yaml orders"
        " --accept-definition` leaves the rows of the target as they are"
    )


def test_a_table_that_is_read_again_has_them_all() -> None:
    assert isinstance(planned({}, position=None), Load)


def test_a_target_may_keep_the_rows_of_partitions_that_are_gone() -> None:
    assert isinstance(planned({}, "ignore"), Advance)
    step = planned({"p4": part("14", brings_rows=True)}, "ignore")
    assert isinstance(step, Stopped) and "dropped" not in step.reason


def test_what_cannot_be_told_is_a_note() -> None:
    step = planned({**BEFORE, "p1": part("11", "21")})
    assert isinstance(step, Advance)
    assert step.notes == (
        "p1 was truncated or rewritten (VACUUM FULL, CLUSTER); no log has the TRUNCATE of a partition, so after one"
        " read the table again: `flowctl state resnapshot spec.yaml orders`",
    )


def test_a_new_partition_is_no_difference_of_definitions() -> None:
    step = planned({**BEFORE, "p4": part("14")})
    assert isinstance(step, Advance) and not step.notes
