"""MySQL's refusal to compare or mix texts of certain collations, avoided for the columns of one target.

Texts of another Unicode character set, and texts of two collations that both compare characters by their codes, have no
common collation there. A statement about such a target converts its values to the collation of the other tables, which
compares all of a text. An equality is also stated in the column's own collation: an index or a hash finds the rows by
that, which takes for equal whatever is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from flowctl.sql import dialects

if TYPE_CHECKING:
    from sqlglot import exp

#: The alias of the target, or of rows that are taken from it, in every statement of this package.
_TARGET = "t"


@dataclass(frozen=True)
class Collations:
    """``collation`` is that of the other tables. ``columns`` are the target's columns that do not mix with it: their
    character set and their own collation."""

    collation: str = ""
    columns: Mapping[str, tuple[str, str]] = field(default_factory=dict, hash=False)

    def value(self, column: str) -> str:
        """The target's ``column``, in MySQL's syntax."""
        own = f"{_TARGET}.{dialects.quoted(column, 'mysql')}"
        return f"CONVERT({own} USING utf8mb4) COLLATE {self.collation}" if column in self.columns else own

    def equality(self, column: str, other: str) -> str:
        """Of the target's ``column`` and of the column of the same name of ``other``, an alias, in MySQL's syntax."""
        name = dialects.quoted(column, "mysql")
        exact = f"{self.value(column)} = {other}.{name}"
        if column not in self.columns:
            return exact
        charset, collation = self.columns[column]
        return f"{_TARGET}.{name} = CONVERT({other}.{name} USING {charset}) COLLATE {collation} AND {exact}"

    def applied(self, statement: exp.Expr) -> exp.Expr:
        """``statement`` with the target's values in the collation of the other tables; changes it in place."""
        from sqlglot import exp

        if not self.columns:
            return statement
        found = [one for one in statement.find_all(exp.Column) if self._is_own(one)]
        stated: list[exp.Expr] = []
        for column in found:
            equality = column.parent
            if not isinstance(equality, exp.EQ):
                continue
            other = equality.right if equality.left is column else equality.left
            if isinstance(other, exp.Column) and other.name == column.name and other.table not in ("", _TARGET):
                stated.append(column)
                equality.replace(exp.paren(_parsed(self.equality(column.name, other.table)), copy=False))
        for column in found:
            if any(column is one for one in stated):
                continue
            value = _parsed(self.value(column.name))
            is_selected = isinstance(column.parent, exp.Select)
            column.replace(exp.alias_(value, column.name, quoted=True) if is_selected else value)
        return statement

    def _is_own(self, value: exp.Expr) -> bool:
        from sqlglot import exp

        return isinstance(value, exp.Column) and value.table == _TARGET and value.name in self.columns


#: All columns mix with those of the other tables, as in every database but MySQL.
ALIKE = Collations()


def _parsed(text: str) -> exp.Expr:
    import sqlglot

    return sqlglot.parse_one(text, read="mysql")
