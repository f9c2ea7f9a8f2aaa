"""Builds the statements of :mod:`flowctl.sql.difference`, which defines their meaning."""

from __future__ import annotations

from collections.abc import Mapping

from sqlglot import exp

from flowctl.sql import dialects
from flowctl.sql.dialects import Dialect
from flowctl.sql.difference import ACTION, SOFT_DELETED, KeyBounds, Upsert

#: A statement, and the actions of the rows that it applies.
Applied = tuple[exp.Expr, tuple[str, ...]]


def difference(change: Upsert, dialect: Dialect) -> str:
    values = [_value(change, name, dialect).as_(name, quoted=True) for name in change.columns]
    values += [_column("t", name).as_(name, quoted=True) for name in change.carried]
    chosen = exp.or_(exp.and_(_is(change, "U"), exp.or_(_absent(change), _changed(change))), _deletes(change))
    return (
        exp.select(*values, _action(change).as_(ACTION, quoted=True))
        .from_(_alias(change.batch, "s"))
        .join(_alias(change.target, "t"), on=_keys_match(change, "t", "s"), join_type="left")
        .where(chosen)
        .sql(dialect)
    )


def apply_statements(change: Upsert, differences: tuple[str, ...], dialect: Dialect) -> dict[str, tuple[str, ...]]:
    statements = (*_deletion(change, differences), *_writing(change, differences))
    return {statement.sql(dialect): actions for statement, actions in statements}


def _deletion(change: Upsert, differences: tuple[str, ...]) -> list[Applied]:
    """Soft deletes delete nothing; marking them is an update."""
    if change.deleted_at is not None:
        return []
    # IN and not EXISTS: without an index SQLite reads all of a correlated subquery for every row.
    gone = (
        exp.select(*(_column("d", name) for name in change.key))
        .from_(_alias(differences, "d"))
        .where(_column("d", ACTION).eq("delete"))
    )
    key = exp.Tuple(expressions=[_name(name) for name in change.key])
    return [(exp.delete(_table(change.target), where=exp.In(this=key, query=gone.subquery())), ("delete",))]


def _writing(change: Upsert, differences: tuple[str, ...]) -> list[Applied]:
    updated = ("update",) if change.deleted_at is None else ("update", "delete")
    values = [name for name in change.columns if name not in change.key]
    update = exp.Update(
        this=_alias(change.target, "t"),
        expressions=[exp.EQ(this=_name(name), expression=_column("d", name)) for name in values],
        where=exp.Where(this=exp.and_(_keys_match(change, "d", "t"), _column("d", ACTION).isin(*updated))),
    ).from_(_alias(differences, "d"))
    rows = (
        exp.select(*(_column("d", name) for name in change.columns))
        .from_(_alias(differences, "d"))
        .where(_column("d", ACTION).eq("insert"))
    )
    insert = exp.insert(rows, _table(change.target), columns=[_name(name) for name in change.columns])
    return [*([(update, updated)] if values else []), (insert, ("insert",))]


def merge_statement(change: Upsert, bounds: KeyBounds) -> str:
    return exp.merge(
        *_when_clauses(change),
        into=_alias(change.target, "t"),
        using=_alias(change.batch, "s"),
        on=exp.and_(_keys_match(change, "t", "s"), *_within(bounds)),
    ).sql("spark")


def _when_clauses(change: Upsert) -> list[exp.When]:
    updated = {name: _batch_value(change, name) for name in change.columns if name in change.batch_columns}
    if change.marks_deletes:
        updated[SOFT_DELETED] = exp.null()
    inserted = exp.Insert(
        this=exp.Tuple(expressions=[_name(name) for name in updated]),
        expression=exp.Tuple(expressions=list(updated.values())),
    )
    return [
        exp.When(matched=True, condition=_deletes(change, matched=True), then=_merge_delete(change)),
        exp.When(matched=True, condition=exp.and_(_is(change, "U"), _changed(change)), then=_set(updated)),
        exp.When(matched=False, condition=_is(change, "U"), then=inserted),
    ]


def _merge_delete(change: Upsert) -> exp.Expr:
    if change.deleted_at is None:
        return exp.var("DELETE")
    return _set({SOFT_DELETED: exp.var(dialects.moment(change.deleted_at, "spark"))})


def _set(values: Mapping[str, exp.Expr]) -> exp.Update:
    return exp.Update(expressions=[exp.EQ(this=_name(name), expression=value) for name, value in values.items()])


def _within(bounds: KeyBounds) -> list[exp.Expr]:
    return [
        exp.Between(this=_column("t", name), low=exp.var(low), high=exp.var(high))
        for name, (low, high) in bounds.by_column.items()
    ]


def _value(change: Upsert, name: str, dialect: Dialect) -> exp.Expr:
    before: exp.Expr = _column("t", name)
    if name == SOFT_DELETED and change.deleted_at is not None:
        before = exp.var(dialects.moment(change.deleted_at, dialect))
    return exp.case().when(_is(change, "D"), before).else_(_batch_value(change, name))


def _batch_value(change: Upsert, name: str) -> exp.Expr:
    """A column that the batch lacks keeps the row's value, null for a new row; a deletion mark is removed."""
    if name in change.batch_columns:
        return _column("s", name)
    return exp.null() if name == SOFT_DELETED else _column("t", name)


def _action(change: Upsert) -> exp.Case:
    return (
        exp.case()
        .when(_is(change, "D"), exp.Literal.string("delete"))
        .when(_absent(change), exp.Literal.string("insert"))
        .else_(exp.Literal.string("update"))
    )


def _changed(change: Upsert) -> exp.Expr:
    differs = [exp.not_(_same(_column("s", name), _column("t", name))) for name in change.compared]
    came_back = [_not_null(_column("t", SOFT_DELETED))] if change.marks_deletes else []
    return exp.or_(*differs, *came_back) if differs or came_back else exp.false()


def _deletes(change: Upsert, *, matched: bool = False) -> exp.Expr:
    """A ``D`` row that still has something to delete. Without soft deletes, a row marked earlier is deleted as well."""
    there = [] if matched else [exp.not_(_absent(change))]
    unmarked = [_column("t", SOFT_DELETED).is_(exp.null())] if change.deleted_at is not None else []
    return exp.and_(_is(change, "D"), *there, *unmarked)


def _absent(change: Upsert) -> exp.Expr:
    return _column("t", change.key[0]).is_(exp.null())


def _is(change: Upsert, operation: str) -> exp.Expr:
    return exp.EQ(this=_column("s", change.operation), expression=exp.Literal.string(operation))


def _keys_match(change: Upsert, left: str, right: str) -> exp.Expr:
    """Plain equality: keys are never null here, and hash joins and indexes require it."""
    return exp.and_(*(exp.EQ(this=_column(left, name), expression=_column(right, name)) for name in change.key))


def _same(left: exp.Expr, right: exp.Expr) -> exp.Expr:
    """Equality for which two nulls are equal: ``IS NOT DISTINCT FROM``, or ``IS`` in SQLite."""
    return exp.NullSafeEQ(this=left, expression=right)


def _not_null(column: exp.Expr) -> exp.Expr:
    return exp.not_(column.is_(exp.null()))


def _column(of: str, name: str) -> exp.Column:
    return exp.column(name, table=of, quoted=True)


def _name(name: str) -> exp.Identifier:
    return exp.to_identifier(name, quoted=True)


def _alias(parts: tuple[str, ...], alias: str) -> exp.Expr:
    return exp.alias_(_table(parts), alias, table=True)


def _table(parts: tuple[str, ...]) -> exp.Table:
    *outer, last = (exp.to_identifier(part, quoted=True) for part in parts)
    return exp.Table(this=last, **dict(zip(("db", "catalog"), reversed(outer), strict=False)))
