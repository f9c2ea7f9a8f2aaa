"""Three-way schema comparison: current source, source and target as recorded in state, current target.

Each difference gets an action, a class, the deciding policy and (from the target's connector) its statement. A
difference whose action is ``fail`` stops the table. Foreign changes to the target are always shown as drift.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from flowctl.connectors.target import TargetCapabilities
from flowctl.model import types
from flowctl.model.projection import Columns, ProjectedColumn
from flowctl.model.schema_change import Action, ChangeClass, SchemaChange
from flowctl.model.table_info import Column
from flowctl.model.types import fields_alike, is_wider, short
from flowctl.plan.comparison import Comparison, RecordedColumns
from flowctl.plan.drift import drift, left_alone, of_others, without_ignored
from flowctl.plan.projection import TEXT_SUFFIX
from flowctl.resolve.names import OWN_NAMES, own_columns
from flowctl.spec.spec import TableSpec
from flowctl.sql.difference import SOURCE_ORDER


def for_new_table(table: TableSpec, wanted: Sequence[ProjectedColumn], can: TargetCapabilities) -> Columns:
    """The schema of a table that does not exist yet: the projection, then flowctl's own columns. All are nullable: a
    source may drop a NOT NULL at any time, and ``expect`` checks what matters."""
    projection = tuple(replace(made, column=replace(made.column, nullable=True)) for made in wanted)
    columns = (*(made.column for made in projection), *own_columns(table).values())
    return Columns(target=columns, projection=projection, changes=tuple(_refused_names(columns, can, {})))


def compare(compared: Comparison) -> Columns:
    """The difference to an existing target."""
    compared = without_ignored(compared)
    others = of_others(compared)
    drifted = [*drift(compared), *(left_alone(compared, column) for column in others)]
    lost = {change.column for change in drifted if change.action == "fail" and change.new is None}
    named = _named(compared.wanted)
    decided = [_decide(compared, made) for made in named.values() if made.column.name not in lost]
    taken = {outcome.made.column.name: outcome.made for outcome in decided}
    kept = _kept(compared, taken, {column.name for column in others})
    if compared.replaces and compared.filled is None:
        kept += [_Outcome(_null(column)) for column in others if column.name not in taken]
    changes = [
        *drifted,
        *(change for outcome in (*decided, *kept) for change in outcome.changes),
        *_own_changes(compared, lost),
    ]
    projection = [outcome.made for outcome in (*decided, *kept) if outcome.written]
    left = [outcome.made.column for outcome in kept if outcome.left_alone]
    columns = _in_target_order(compared, projection, left)
    standing = {column.name.lower() for column in columns if column.name in compared.there}
    left_out = [column.name for column in others if column.name.lower() not in standing]
    twins = _twins(compared.wanted, named, decided)
    return Columns(
        target=columns,
        projection=_ordered(projection, columns),
        changes=(*changes, *_refused_names((*columns, *twins), compared.can, compared.there, left_out)),
    )


@dataclass(frozen=True)
class _Outcome:
    """The decision for one column: how it is written, if at all, and the schema changes needed. ``left_alone``: it
    stays in the target, and no write changes its stored values."""

    made: ProjectedColumn
    changes: tuple[SchemaChange, ...] = ()
    written: bool = True
    left_alone: bool = False


def _decide(compared: Comparison, made: ProjectedColumn) -> _Outcome:
    table, recorded, can = compared.table, compared.recorded, compared.can
    now = compared.there.get(made.column.name)
    if now is None:
        return _new(table, made, recorded)
    if now.type == can.stores(made.column.type):
        return _nullable(table, made, now)
    if now.type == made.column.type or is_wider(now.type, made.column.type):
        return _nullable(table, _typed(made, now), now)
    if made.column.name + TEXT_SUFFIX in compared.there:
        return _Outcome(_as_text(made))
    if recorded.wanted.get(made.column.name) == made.column and recorded.target.get(now.name) == now:
        return _nullable(table, made, now)  # this target stores the type in its own way
    if is_wider(made.column.type, now.type) and can.widens(now.type, made.column.type):
        is_anew = compared.replaces and can.replaces_types
        return _anew(compared, made, now) if is_anew else _wider(table, made, now)
    return _retyped(table, made, now) if compared.rebuilds else _other(table, made, now)


def _new(table: TableSpec, made: ProjectedColumn, recorded: RecordedColumns) -> _Outcome:
    policy = table.on_schema_change.new_column
    column = replace(made.column, nullable=True)
    if policy == "ignore" and column.name in recorded.wanted:
        return _Outcome(made, written=False)  # already ignored before: nothing to report
    change = SchemaChange(
        column.name, "new_column", None, column.type, policy, f"on_schema_change.new_column: {policy}",
        native=column.native,
    )  # fmt: skip
    return _Outcome(replace(made, column=column), (change,), written=policy == "add")


def _wider(table: TableSpec, made: ProjectedColumn, now: Column) -> _Outcome:
    policy = table.on_schema_change.wider_type
    change = SchemaChange(
        now.name, "wider_type", now.type, made.column.type, policy, f"on_schema_change.wider_type: {policy}"
    )
    relaxed = _nullable(table, made, now)
    return _Outcome(relaxed.made, (change, *relaxed.changes))


def _anew(compared: Comparison, made: ProjectedColumn, now: Column) -> _Outcome:
    """A wider type that takes effect with the replaced content."""
    outcome = _wider(compared.table, made, now)
    change, *relaxed = outcome.changes
    if change.action == "fail" and not compared.rebuilds:
        return outcome
    policy = change.policy if change.action != "fail" else "--full-refresh"
    return replace(outcome, changes=(replace(change, action="retype", policy=policy), *relaxed))


def _retyped(table: TableSpec, made: ProjectedColumn, now: Column) -> _Outcome:
    column = replace(made.column, nullable=True)
    change = SchemaChange(
        now.name, "other_type", now.type, column.type, "retype", "--full-refresh", "destructive",
        if_refused=f"Drop the table in the target, then run with --full-refresh {table.id}", native=column.native,
    )  # fmt: skip
    return _Outcome(replace(made, column=column), (change,))


def _other(table: TableSpec, made: ProjectedColumn, now: Column) -> _Outcome:
    policy = table.on_schema_change.other_type
    rule = f"on_schema_change.other_type: {policy}"
    note = "the target cannot widen this in place" if is_wider(made.column.type, now.type) else ""
    if policy == "fail" or made.column.name in table.key:
        note = note or ("a key column cannot become text" if policy == "text" else "")
        failed = SchemaChange(now.name, "other_type", now.type, made.column.type, "fail", rule, note=note)
        return _Outcome(made, (failed,))
    text = _as_text(made)
    change = SchemaChange(
        text.column.name, "other_type", now.type, types.STRING, "text", rule,
        note=f'"{now.name}" is {short(made.column.type)} now and null from now on',
    )  # fmt: skip
    return _Outcome(text, (change,))


def _nullable(table: TableSpec, made: ProjectedColumn, now: Column) -> _Outcome:
    """The column keeps the target's nullability, unless the source may now send nulls. A null in a key stops the
    table when it is read."""
    if made.column.nullable == now.nullable:
        return _Outcome(made)
    is_key = table.mode in ("merge", "scd2") and now.name in table.key
    if now.nullable or not made.column.nullable or is_key:
        return _Outcome(replace(made, column=replace(made.column, nullable=now.nullable)))
    policy = table.on_schema_change.nullable
    change = SchemaChange(
        now.name, "nullable", now.type, now.type, policy, f"on_schema_change.nullable: {policy}", note="may be null",
        if_refused="Set on_schema_change.nullable: relax, or make the column nullable in the target"
        if policy == "fail" else "Copy the table there without that NOT NULL, and put the copy in its place",
    )  # fmt: skip
    return _Outcome(made, (change,))


def _kept(compared: Comparison, taken: Mapping[str, ProjectedColumn], leaving: Collection[str]) -> list[_Outcome]:
    """Target columns that flowctl has written and the source does not fill, without those in ``leaving``. Of a column
    and its text, the one that is not filled (or no more) is null, so that no row has a stale value in it."""
    filled = {*taken, *compared.own}
    outcomes = []
    for column in compared.there.values():
        if column.name in filled or column.name in leaving:
            continue
        empty = _null(column)
        if column.name in OWN_NAMES:
            outcomes.append(_own_of_another_mode(compared, empty))
        elif text := taken.get(column.name + TEXT_SUFFIX):
            outcomes.append(_Outcome(replace(empty, compared=text.compared)))
        elif compared.redefined and column.name not in compared.recorded.wanted:
            outcomes.append(_leaves(empty, "--full-refresh", "destructive"))
        elif (typed := _typed_again(compared, column, taken)) is not None:
            outcomes.append(_text_of(compared, empty, typed))
        else:
            outcomes.append(_dropped(compared, column))
    return outcomes


def _typed_again(compared: Comparison, column: Column, taken: Mapping[str, ProjectedColumn]) -> ProjectedColumn | None:
    """The column whose text ``column`` had, while the type of the source's was another; None if that was not so."""
    name, recorded = column.name.removesuffix(TEXT_SUFFIX), compared.recorded
    is_text = name != column.name and column.name in recorded.target and column.name not in recorded.wanted
    return taken.get(name) if is_text else None


def _text_of(compared: Comparison, empty: ProjectedColumn, typed: ProjectedColumn) -> _Outcome:
    column, name = empty.column, typed.column.name
    # A value made of the source's column, not an absent one: a history would keep that as it was. A change of a stream
    # that does not send the column keeps both values.
    outcome = _Outcome(replace(typed, column=empty.column, expression="CAST(NULL AS STRING)"))
    now = next(made.column.type for made in compared.wanted if made.column.name == name)
    before = compared.recorded.wanted.get(name)
    if before is not None and before.type == now:
        return outcome  # an earlier run has reported it
    change = SchemaChange(
        column.name, "dropped_column", column.type, None, "null",
        f"on_schema_change.other_type: {compared.table.on_schema_change.other_type}",
        note=f'"{name}" is {short(now)} again and filled; null from now on',
    )  # fmt: skip
    return replace(outcome, changes=(change,))


def _null(column: Column) -> ProjectedColumn:
    return ProjectedColumn(replace(column, nullable=True), "NULL")


def _own_of_another_mode(compared: Comparison, empty: ProjectedColumn) -> _Outcome:
    """One of flowctl's own columns that this mode does not have: it is dropped with the content it was created for."""
    if compared.replaces:
        return _leaves(empty, "mode", "safe")
    return _Outcome(empty, written=False, left_alone=True)


def _leaves(empty: ProjectedColumn, policy: str, of_class: ChangeClass) -> _Outcome:
    column = empty.column
    change = SchemaChange(
        column.name, "dropped_column", column.type, None, "drop", policy, of_class, note="not in the definition"
    )
    return _Outcome(empty, (change,), written=False)


def _dropped(compared: Comparison, column: Column) -> _Outcome:
    """A column that no longer exists in the source. Its stored values can be kept only where stored rows are: a merge
    omits it from its writes, an append writes only new rows. A history would treat the missing column as a change of
    every row that is read again. A column with a default, which may be NOT NULL, is left to the database; from then on
    flowctl does not write it."""
    table, recorded = compared.table, compared.recorded
    policy = table.on_schema_change.dropped_column
    stays = table.mode in ("append", "merge") and not compared.replaces
    keeps, loses = stays and policy == "keep", compared.replaces and not column.nullable
    is_filled = compared.fills.get(column.name) == "default" and (keeps or loses)
    left_alone = keeps and table.mode == "merge" and not is_filled
    outcome = _Outcome(_null(column), written=not (left_alone or is_filled), left_alone=left_alone)
    is_known = bool(recorded.wanted) and column.name not in recorded.wanted
    rule = f"on_schema_change.dropped_column: {policy}"
    ways = "Put it back, drop the column in the target, or copy the table there without that NOT NULL"
    if stays and compared.fills.get(column.name) == "default":
        ways = f"Set on_schema_change.dropped_column: keep, and new rows have its default; p{ways[1:]}"
    relaxed = SchemaChange(
        column.name, "nullable", column.type, column.type, "relax", rule, note="may be null", if_refused=ways
    )
    if is_known and not compared.replaces:
        return outcome if column.nullable else replace(outcome, changes=(relaxed,))
    action: Action = "fail" if policy == "fail" or (policy == "keep" and not stays) else policy
    of_class: ChangeClass = "safe" if stays else "destructive"
    keeping = "keep" if stays else '"null" to have it null from now on'
    note = (is_filled and _DROPPED_WITH_DEFAULT.get((policy, stays))) or _DROPPED[policy, stays]
    note = note.replace(_GONE, "not filled from the source") if is_known else note
    change = SchemaChange(
        column.name, "dropped_column", column.type, None, action, rule, of_class, note=note, is_known=is_known,
        if_refused=f"Put it back, set on_schema_change.dropped_column: {keeping}, or drop the column in the target",
    )  # fmt: skip
    changes = (change,) if column.nullable or is_filled or action == "fail" else (change, relaxed)
    return replace(outcome, changes=changes)


_GONE = "gone from the source"
#: Notes by policy, and whether stored values can be kept.
_DROPPED = {
    ("keep", True): "stored values stay, new rows have null",
    ("keep", False): f"{_GONE}; its stored values would become null",
    ("null", True): "null from now on",
    ("null", False): "null from now on; its stored values are lost",
    ("fail", True): f"the column is {_GONE}",
    ("fail", False): f"the column is {_GONE}",
}
_DROPPED_WITH_DEFAULT = {
    ("keep", True): "stored values stay, new rows have its default",
    ("null", False): "has its default from now on; its stored values are lost",
}


def _own_changes(compared: Comparison, lost: set[str]) -> Iterator[SchemaChange]:
    for column in compared.own.values():
        if column.name not in compared.there and column.name not in lost:
            policy = "mode: scd2" if compared.table.mode == "scd2" else "deletes.action: soft"
            if column.name == SOURCE_ORDER:
                policy = "format.source_order"
            yield SchemaChange(column.name, "new_column", None, column.type, "add", policy)


def _named(wanted: Sequence[ProjectedColumn]) -> dict[str, ProjectedColumn]:
    """One column of each name. Of two, the one that has it by a rule: it is likely to have had it before."""
    named: dict[str, ProjectedColumn] = {}
    for made in wanted:
        if made.column.name not in named or made.source != made.column.name:
            named[made.column.name] = made
    return named


def _twins(
    wanted: Sequence[ProjectedColumn], named: Mapping[str, ProjectedColumn], decided: Sequence[_Outcome]
) -> Iterator[Column]:
    """Columns whose name in the target another one has too, by a rule or as a text. It would get the values of one."""
    written = Counter(outcome.made.column.name for outcome in decided if outcome.written)
    yield from (made.column for made in wanted if made.column.name in written and made is not named[made.column.name])
    yield from (Column(name, types.STRING) for name, times in written.items() if times > 1)


def _refused_names(
    columns: Sequence[Column], can: TargetCapabilities, there: Mapping[str, Column], others: Collection[str] = ()
) -> Iterator[SchemaChange]:
    """Refuses names that the target does not accept, and names that differ only in case from each other or from
    ``others``. The types of ``there`` are in the target already."""
    seen = {name.lower(): name for name in others}
    for column in columns:
        earlier = seen.get(column.name.lower())
        seen[column.name.lower()] = column.name
        hint = "Rename or exclude it under `columns`"
        if earlier is not None:
            note = f'collides with "{earlier}"' + (", which differs in case only" * (earlier != column.name))
        elif reason := can.refuses_names(column.name):
            note = f"cannot keep its name: {reason}"
        elif can.folds_fields and not _is_there(column, there) and (alike := fields_alike(column.type)):
            note = f'has the fields "{alike[0]}" and "{alike[1]}", which the target does not tell apart'
            hint = "Rename one of them in the source, or exclude the column under `columns`"
        else:
            continue
        yield SchemaChange(
            column.name, "new_column", None, column.type, "fail", "column names", note=note, if_refused=hint
        )


def _is_there(column: Column, there: Mapping[str, Column]) -> bool:
    return column.name in there and there[column.name].type == column.type


def _typed(made: ProjectedColumn, now: Column) -> ProjectedColumn:
    """The target's type may be wider: values are cast to it."""
    return replace(made, column=replace(made.column, type=now.type))


def _as_text(made: ProjectedColumn) -> ProjectedColumn:
    column = Column(made.column.name + TEXT_SUFFIX, types.STRING)
    return replace(made, column=column, expression=f"CAST({made.expression} AS STRING)")


def _in_target_order(
    compared: Comparison, projection: Sequence[ProjectedColumn], left_alone: Sequence[Column]
) -> tuple[Column, ...]:
    after = {column.name: column for column in (*(made.column for made in projection), *left_alone)} | {**compared.own}
    old = [after[name] for name in compared.there if name in after]
    return (*old, *(column for name, column in after.items() if name not in compared.there))


def _ordered(projection: Sequence[ProjectedColumn], columns: Sequence[Column]) -> tuple[ProjectedColumn, ...]:
    by_name = {made.column.name: made for made in projection}
    return tuple(by_name[column.name] for column in columns if column.name in by_name)
