from __future__ import annotations

from flowctl.changes.shape import Shape
from flowctl.model.table_info import Column, ObjectName
from flowctl.model.types import INT32, STRING

COLUMNS = (Column("id", INT32), Column("code", STRING), Column("note", STRING), Column("n", INT32))


def test_columns_whose_values_an_update_may_leave_out() -> None:
    assert Shape(ObjectName(("one",)), "7/1", COLUMNS, ("id", "code")).left_out == ("note",)
    assert Shape(ObjectName(("one",)), "7/1", COLUMNS, ("id", "code", "note", "n")).left_out == ()
