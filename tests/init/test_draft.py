"""What the plan refuses of a first draft is changed in the next one."""

from __future__ import annotations

from flowctl.init.check import Refusal
from flowctl.init.decision import Decision
from flowctl.init.draft import _changed
from flowctl.model.table_info import ObjectName


def test_a_column_that_the_target_does_not_take_is_left_out_of_a_schema() -> None:
    """Excluded, it would still be read from the files. A schema without columns would be none."""
    schema = {"schema": {"a": "bigint", "A": "bigint"}}
    decision = Decision("t", ObjectName(("t.jsonl",)), "truncate", "", format=schema)
    changed = _changed(decision, Refusal("a collision", ("A", "year")))
    assert (changed.format, changed.exclude) == ({"schema": {"a": "bigint"}}, ("year",))
    changed = _changed(decision, Refusal("a collision", ("a", "A")))
    assert (changed.format, changed.exclude) == (schema, ("a", "A"))
