"""What an entry of ``expect`` is: a check on the rows of each batch, decided before its commit.

A check is one file here with one class: how the spec writes it, the Spark SQL that finds what breaks it, what it
needs, and what an engine cannot do. It is one of three shapes. A :class:`RowExpectation` holds for each row by itself,
so it needs no staged batch to fail, and rows that break it can be quarantined. A :class:`GroupExpectation` looks at
rows with one value together, a :class:`BatchExpectation` at one aggregate of all rows; both need the batch staged.
"""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self

from flowctl import text
from flowctl.diagnostics import Mark
from flowctl.model.types import DataType
from flowctl.sql import dialects

OnFail = Literal["fail", "quarantine", "warn"]


@dataclass(frozen=True)
class BatchColumns:
    """What checks must know of the columns that they name: ``types`` by name, as far as they are known, and the
    ``zone`` of those without a time zone of their own, if the spec gives one."""

    types: Mapping[str, DataType]
    zone: str | None = None


@dataclass(frozen=True, kw_only=True)
class Expectation(ABC):
    """``column`` is the target column that is checked; empty for a check that names none."""

    #: Its key in an entry of the spec, and the JSON Schema of what stands there.
    key: ClassVar[str]
    schema: ClassVar[Mapping[str, Any]]
    #: Whether the entry names the column, as ``column``.
    takes_column: ClassVar[bool] = False
    #: Engine → why it would not keep the check's promise there.
    gaps: ClassVar[Mapping[str, str]] = {}

    column: str = ""
    on_fail: OnFail = "fail"
    mark: Mark

    @property
    def name(self) -> str:
        return f"{self.column}: {self.key}" if self.takes_column else self.key

    @property
    def needs_staging(self) -> bool:
        """Whether it is decided on counts. A row that breaks a check with ``fail`` fails the write itself."""
        return self.on_fail != "fail" or not isinstance(self, RowExpectation)

    @classmethod
    def read(cls, entry: Mapping[str, Any], mark: Mark) -> Self:
        """From an entry of the spec whose argument, what stands under :attr:`key`, :attr:`schema` accepts."""
        common = {key: entry[key] for key in ("column", "on_fail") if key in entry}
        return cls(mark=mark, **{**common, **cls.fields(entry[cls.key])})

    @classmethod
    def fields(cls, argument: Any) -> Mapping[str, Any]:
        """What the argument makes of the class's own fields."""
        return {}

    @classmethod
    def flaw(cls, argument: Any) -> tuple[str, str] | None:
        """What is wrong with an argument that :attr:`schema` accepts, and what to do."""
        return None

    def refuse(self, columns: BatchColumns) -> tuple[str, str] | None:
        """Why it cannot be decided on these columns, and what to do."""
        return None

    @abstractmethod
    def problem(self, found: Any, columns: BatchColumns, now: dt.datetime) -> str | None:
        """What is wrong with a batch in which this was ``found``, in words; None when the check holds."""


class _Counted(Expectation):
    def problem(self, found: Any, columns: BatchColumns, now: dt.datetime) -> str | None:
        return text.counted(found, "row") if found else None


class RowExpectation(_Counted):
    """Broken only by a row that is known to break it: null passes, as SQL's own CHECK has it. What is found is how many
    rows break it."""

    @abstractmethod
    def holds(self) -> str:
        """A condition in Spark SQL that is true for rows as they should be."""

    def violation(self) -> str:
        """True for rows that break it, never null."""
        return f"NOT coalesce({self.holds()}, true)"


class GroupExpectation(_Counted):
    """Rows with one value of the column, nulls apart. What is found is how many rows are in groups that break it."""

    @abstractmethod
    def violation(self, rows: str) -> str:
        """A condition in Spark SQL on ``rows``, the number of rows of one value."""


class BatchExpectation(Expectation):
    """What is found is the measure as text; None where it is null."""

    @abstractmethod
    def measure(self, columns: BatchColumns) -> str:
        """One call of an aggregate function in Spark SQL, over the rows of the batch."""


def quoted(column: str) -> str:
    return dialects.quoted(column, "spark")


def literal(value: Any) -> str:
    """A value of the spec in Spark SQL."""
    match value:
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case float():
            return f"CAST('{value!r}' AS DOUBLE)"
        case _:
            return dialects.text(str(value), "spark")
