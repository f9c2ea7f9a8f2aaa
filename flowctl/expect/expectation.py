"""One entry of ``expect``: a check on the rows of each batch, evaluated before the batch is committed.

Each check is one file with one class, which defines its syntax in the spec, the Spark SQL that finds violations, what
it needs, and what an engine cannot do. There are three kinds. A :class:`RowExpectation` applies to each row by itself:
it can fail without a staged batch, and rows that violate it can be quarantined. A :class:`GroupExpectation` applies to
all rows with one value, a :class:`BatchExpectation` to one aggregate of all rows; both need the batch staged.
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
    """What checks must know about columns: ``types`` by name, as far as they are known, and the ``zone`` of columns
    without a time zone, if the spec gives one."""

    types: Mapping[str, DataType]
    zone: str | None = None


@dataclass(frozen=True, kw_only=True)
class Expectation(ABC):
    """``column`` is the target column that is checked; empty for a check that names none."""

    #: The check's key in an entry of the spec, and the JSON Schema of its argument.
    key: ClassVar[str]
    schema: ClassVar[Mapping[str, Any]]
    #: Whether the entry names a column, with the key ``column``.
    takes_column: ClassVar[bool] = False
    #: Whether it is about the newest rows, which the last of a run's commits has.
    of_newest: ClassVar[bool] = False
    #: Engine → why the check cannot be guaranteed there.
    gaps: ClassVar[Mapping[str, str]] = {}

    column: str = ""
    on_fail: OnFail = "fail"
    mark: Mark

    @property
    def name(self) -> str:
        return f"{self.column}: {self.key}" if self.takes_column else self.key

    @property
    def needs_staging(self) -> bool:
        """Whether it is evaluated by counting. A row that violates a check with ``fail`` fails the write itself."""
        return self.on_fail != "fail" or not isinstance(self, RowExpectation)

    def reads(self, column: str) -> bool:
        """Whether the check depends on the values of the target column."""
        return self.column == column

    @classmethod
    def read(cls, entry: Mapping[str, Any], mark: Mark) -> Self:
        """The check of a spec entry whose argument (the value of :attr:`key`) is valid under :attr:`schema`."""
        common = {key: entry[key] for key in ("column", "on_fail") if key in entry}
        return cls(mark=mark, **{**common, **cls.fields(entry[cls.key])})

    @classmethod
    def fields(cls, argument: Any) -> Mapping[str, Any]:
        """The values of the class's own fields, from the argument."""
        return {}

    @classmethod
    def flaw(cls, argument: Any) -> tuple[str, str] | None:
        """What is wrong with an argument that :attr:`schema` accepts, and what to do; None if nothing is."""
        return None

    def refuse(self, columns: BatchColumns) -> tuple[str, str] | None:
        """Why the check cannot be evaluated on these columns, and what to do; None if it can."""
        return None

    @abstractmethod
    def problem(self, found: Any, columns: BatchColumns, now: dt.datetime) -> str | None:
        """What is wrong with a batch whose measured value is ``found``; None if the check passes."""


class _Counted(Expectation):
    def problem(self, found: Any, columns: BatchColumns, now: dt.datetime) -> str | None:
        return text.counted(found, "row") if found else None


class RowExpectation(_Counted):
    """A check on each row. Null passes, as in SQL's CHECK. The measured value is the number of rows that violate it."""

    @abstractmethod
    def holds(self) -> str:
        """A condition in Spark SQL that is true for valid rows."""

    def violation(self) -> str:
        """A condition that is true for rows that violate the check, and never null."""
        return f"NOT coalesce({self.holds()}, true)"


class GroupExpectation(_Counted):
    """A check on all rows with one value of the column, other than null. The measured value is the number of rows in
    groups that violate it."""

    @abstractmethod
    def violation(self, rows: str) -> str:
        """A condition in Spark SQL on ``rows``, the number of rows with one value."""


class BatchExpectation(Expectation):
    """A check on one aggregate. The measured value is its result as text, None if it is null."""

    @abstractmethod
    def measure(self, columns: BatchColumns) -> str:
        """One call of an aggregate function in Spark SQL, over the rows of the batch."""


def quoted(column: str) -> str:
    return dialects.quoted(column, "spark")


def literal(value: Any) -> str:
    """A value of the spec as a literal in Spark SQL."""
    match value:
        case bool():
            return str(value).lower()
        case int():
            return str(value)
        case float():
            return f"CAST('{value!r}' AS DOUBLE)"
        case _:
            return dialects.text(str(value), "spark")
