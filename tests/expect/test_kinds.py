"""Each check as the spec writes it, and the Spark SQL that it becomes. A new check is a file in `flowctl/expect/` and
a line in :data:`CHECKS`."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import pytest

import flowctl.expect
from flowctl.diagnostics import Mark
from flowctl.expect.expectation import BatchColumns, BatchExpectation, Expectation, GroupExpectation, RowExpectation
from flowctl.expect.kinds import kinds
from flowctl.model import types
from flowctl.spec.schema import definition

MARK = Mark("flow.yaml", 20, 5)
NOW = dt.datetime(2026, 11, 20, 12, tzinfo=dt.UTC)
COLUMNS = BatchColumns({"at": types.TIMESTAMP, "day": types.DATE}, zone="America/New_York")
DOCS = Path(__file__).parents[2] / "docs"

#: Key → argument, the condition or measure, what is found in a bad batch, and what is said of it.
CHECKS: dict[str, list[tuple[Any, str, Any, str]]] = {
    "not_null": [(True, "NOT coalesce(`a ``b` IS NOT NULL, true)", 1_200, "1,200 rows")],
    "unique": [(True, "n > 1", 2, "2 rows")],
    "between": [
        ([0, 9], "NOT coalesce(`a ``b` >= 0 AND `a ``b` <= 9, true)", 3, "3 rows"),
        ([0.5, 9], "NOT coalesce(`a ``b` >= CAST('0.5' AS DOUBLE) AND `a ``b` <= 9, true)", 3, "3 rows"),
    ],
    "in": [(["it's", True, 1], r"NOT coalesce(`a ``b` IN ('it\'s', true, 1), true)", 3, "3 rows")],
    "matches": [(r"\d+", r"NOT coalesce(`a ``b` RLIKE '\\A(?:\\d+)\\z', true)", 3, "3 rows")],
    "sql": [("n > 0 -- not less", "NOT coalesce((n > 0 -- not less\n), true)", 3, "3 rows")],
    "rows": [
        ({"min": 10}, "count(1)", "9", "9 rows, at least 10 expected"),
        ({"max": 8}, "count(1)", "9", "9 rows, at most 8 expected"),
    ],
    "freshness": [
        (
            {"column": "at", "within": "1h"},
            "max(CAST(`at` AS TIMESTAMP))",
            "2026-11-20 10:00:00",
            'newest "at" is 7,200 s old, at most 3,600 s allowed',
        ),
        (
            {"column": "day", "within": "1d"},
            "max(CAST(`day` AS TIMESTAMP_NTZ))",
            "2026-11-19 00:00:00",
            'newest "day" is 111,600 s old, at most 86,400 s allowed',
        ),
        ({"column": "at", "within": "1h"}, "max(CAST(`at` AS TIMESTAMP))", None, 'no value in "at"'),
    ],
}
CASES = [(key, *case) for key, cases in CHECKS.items() for case in cases]


def sql_of(check: Expectation) -> str:
    match check:
        case RowExpectation():
            return check.violation()
        case GroupExpectation():
            return check.violation("n")
        case BatchExpectation():
            return check.measure(COLUMNS)
        case _:
            raise AssertionError(f"{check.key} is of no shape")


@pytest.mark.parametrize(("key", "argument", "sql", "found", "problem"), CASES)
def test_a_check(key: str, argument: Any, sql: str, found: Any, problem: str) -> None:
    check = kinds()[key]
    entry = {key: argument, "on_fail": "warn"} | ({"column": "a `b"} if check.takes_column else {})
    made = check.read(entry, MARK)
    assert (made.on_fail, made.mark, sql_of(made)) == ("warn", MARK, sql)
    assert made.problem(found, COLUMNS, NOW) == problem
    assert made.name == (f"a `b: {key}" if check.takes_column else key)


def test_every_check_of_the_schema_has_its_class_its_file_and_its_test() -> None:
    in_schema = set(definition("expectation")["properties"]) - {"column", "on_fail"}
    assert in_schema == set(kinds()) == set(CHECKS)
    files = {file.stem for file in Path(flowctl.expect.__path__[0]).glob("*.py")} - {"__init__", "expectation", "kinds"}
    assert files == {check.__module__.rpartition(".")[2] for check in kinds().values()}


@pytest.mark.parametrize("key", kinds())
def test_every_check_is_documented(key: str) -> None:
    assert f"| `{key}` |" in (DOCS / "expectations.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("bounds", [[10, 1], ["b", "a"], [1, "a"]])
def test_bounds_that_nothing_lies_between(bounds: list[Any]) -> None:
    assert kinds()["between"].flaw(bounds) is not None


def test_a_local_time_needs_a_zone() -> None:
    check = kinds()["freshness"].read({"freshness": {"column": "day", "within": "1d"}}, MARK)
    assert check.refuse(COLUMNS) is None
    what, hint = check.refuse(BatchColumns(COLUMNS.types)) or ("", "")
    assert what == 'freshness: "day" has no time zone, so its age is not known'
    assert "zone: Europe/Amsterdam" in hint
