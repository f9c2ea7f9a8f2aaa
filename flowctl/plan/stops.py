"""Reasons to stop a table before its interval is determined, in the order in which they are checked."""

from __future__ import annotations

import shlex
from collections.abc import Callable

from flowctl.connectors.source import Missing
from flowctl.errors import StoppedByPolicy
from flowctl.expect.expectation import BatchColumns
from flowctl.model import reserved, types
from flowctl.model.commit import Commit, Intent
from flowctl.model.sidecars import OBSERVED
from flowctl.model.step import Stopped, StoppedBy
from flowctl.model.table_info import TableInfo, same_identity
from flowctl.plan.appending import appending_twice
from flowctl.plan.case import Case
from flowctl.plan.column_names import taken_over_column, unprotected_column, unread_column
from flowctl.plan.delete_flag import unusable_flag
from flowctl.plan.finding import Stop
from flowctl.plan.projection import projection, taken_name
from flowctl.plan.redefinition import is_moved, stop_if_redefined
from flowctl.plan.restored import unfinished_restoration
from flowctl.plan.shape import known_columns, recorded_target
from flowctl.resolve.names import own_columns
from flowctl.resolve.places import SIDECARS, letters_of
from flowctl.spec.spec import SqlSource

Reason = Callable[[Case], Stop | None]


def first_stop(case: Case) -> Stop | None:
    """Returns the first stop of :data:`REASONS`, if any."""
    return next((stop for reason in REASONS if (stop := reason(case))), None)


def _not_observed(case: Case) -> Stop | None:
    error = case.observed.error
    if error is None:
        return None
    by: StoppedBy = "policy" if isinstance(error, StoppedByPolicy) else "error"
    return Stop(error.message, error.hint, "from", by, mark=error.mark)


def _needs_a_stopped_table(case: Case) -> Stop | None:
    for table_id, step in sorted(case.upstream.items()):
        if isinstance(step, Stopped):
            return Stop(f"requires {table_id}, which is stopped", f"Fix {table_id} first", "from", "dependency")
    return None


def _needs_an_unlisted_table(case: Case) -> Stop | None:
    source = case.table.source
    for table_id in source.refs if isinstance(source, SqlSource) else ():
        if table_id not in case.sequences:
            return Stop(
                f"requires {table_id}, whose source could not be listed", "Fix that first", "from", "dependency"
            )
    return None


def _needs_an_empty_table(case: Case) -> Stop | None:
    for table_id, seq in sorted(case.sequences.items()):
        if seq == 0 and table_id not in case.upstream:
            when = f"with a cursor, {table_id} is loaded once its source has rows"
            hint = f"Select it too: --select +{case.table.id}; {when}"
            return Stop(f"requires {table_id}, which has never been loaded", hint, "from", "dependency")
    return None


def _no_source(case: Case) -> Stop | None:
    if case.is_sql or case.observed.source is not None:
        return None
    why = case.observed.missing or Missing("it is not there", "Correct `from`, or let the connection's user see it")
    if case.is_glob:
        hint = f"{why.hint}; allow_none: true if there may be none"
        return Stop(f"{case.table.source} matches nothing: {why.reason}", hint, "from")
    return Stop(f"{case.table.source} does not exist: {why.reason}", why.hint, "from", "error")


def _shared_target(case: Case) -> Stop | None:
    source, target = case.observed.source, case.observed.target or case.observed.unwritten
    if case.shared:
        return Stop(f"{case.table.id} {case.shared}", "Give one of them another `to`", "to")
    if source is not None and target is not None and target.identity and source.identity == target.identity:
        return Stop(f"{case.table.source} and {case.table.target} are the same table", "Give it another `to`", "to")
    return None


def _foreign_target(case: Case) -> Stop | None:
    """A target that this flow did not create. A full refresh takes it over, unless it holds a history, whose origin is
    unknown."""
    if case.observed.target is None or _is_ours(case, case.observed.target):
        return None
    if case.full_refresh and case.replaces:
        return None
    adopt = case.state_command("adopt")
    refresh = f"--full-refresh {case.table.id} to replace its content"
    ways = [f"{adopt} to take it over as it is"] if not case.lacks_history else []
    ways += [refresh] if case.table.mode != "scd2" or case.lacks_history else []
    hint = ", or ".join(ways)
    return Stop(f"{case.table.target} exists and {_maker(case)}", hint, "to")


def _maker(case: Case) -> str:
    """Who has made a target that is not this table's. A changed `to` that was accepted leaves no record of which table
    of the flow had another one."""
    if case.owner:
        return f"was made by this flow for {case.owner}"
    return f"was not made by this flow{f' for {case.table.id}' if case.state.seq else ''}"


def _coarse_key(case: Case) -> Stop | None:
    """Two keys of the source would be one in the target: each row would change the other's."""
    target = case.observed.target
    if target is None or case.table.mode not in ("merge", "scd2"):
        return None
    refused = case.rules.refuse_key(target, case.table.key, case.table.layout)
    return Stop(*refused, "key") if refused else None


def _refused_name(case: Case) -> Stop | None:
    """Only for a table from a pattern; any other table's refused name is an error of the spec."""
    return Stop(*case.refused_name, "to") if case.refused_name else None


def _target_moved(case: Case) -> Stop | None:
    """The target must match the state: the sequence number and intent of its own record, and the table's identity."""
    state, target, commit = case.state, case.observed.target, case.observed.commit
    intent = None if state.given_up else state.intent
    expected = state.target_id or (intent.target_id if intent else "")
    if case.full_refresh:
        return None if case.replaces else unfinished_restoration(case)
    if case.begun_refresh is not None:
        return _moved_since_refresh(case, case.begun_refresh)
    if is_moved(case):
        return None
    if target is None:
        return _gone(case) if expected and not state.forgotten else None
    if expected and not same_identity(target.identity, expected):
        return Stop(f"{case.table.target} is another table than the one this flow has written", _next_steps(case), "to")
    if _agrees(case, commit):
        return None
    if (stop := unfinished_restoration(case)) is not None:
        return stop
    if commit and commit.seq == state.seq:
        reason = f"the target carries another commit of sequence number {state.seq} than the recorded one"
    else:
        found = f"sequence number {commit.seq}" if commit else "no sequence number of this flow"
        relation = "ahead of" if commit and commit.seq > state.seq else "behind"
        reason = f"the target carries {found}, {relation} the recorded sequence number {state.seq}"
    return Stop(reason, _next_steps(case), "to")


def _not_created(case: Case) -> Stop | None:
    """A target that does not exist, and that the first write does not create."""
    if case.observed.target is not None or case.observed.unwritten is not None:
        return None
    refused = case.rules.refuse_create(case.table.target.object, case.table.layout)
    return Stop(*refused, "to") if refused else None


def _gone(case: Case) -> Stop:
    hint = f"Restore it, or --full-refresh {case.table.id} to create it again"
    return Stop(f"{case.table.target} is gone", hint, "to")


def _next_steps(case: Case) -> str:
    adopt = f"{case.state_command('adopt')} takes the sequence number and position from the target"
    return adopt if case.rules.is_log else f"{adopt}; --full-refresh {case.table.id} reads everything again"


def _moved_since_refresh(case: Case, begun: Intent) -> Stop | None:
    """A full refresh replaces the table that existed when it began. Its own intent identifies that table, regardless of
    the rest of state."""
    target, commit = case.observed.target, case.observed.commit
    if target is None:
        return _gone(case) if begun.target_id else None
    if not (case.is_committed or _is_what_begun_writes(target, begun)):
        reason = f"{case.table.target} is another table than the one that the interrupted full refresh replaces"
        return Stop(reason, f"Replace this one with --full-refresh {case.table.id}", "to")
    if commit is not None and commit.seq >= begun.seq and not case.is_committed:
        reason = f"the target carries sequence number {commit.seq}, which is not that of the interrupted full refresh"
        return Stop(reason, _next_steps(case), "to")
    return None


def _foreign_sidecar(case: Case) -> Stop | None:
    """A foreign table in the place of one of this table's sidecars: it would be changed or replaced."""
    for suffix, info in case.observed.sidecars.items():
        if info is None:
            continue
        is_history = suffix == OBSERVED
        own = reserved.FIRST_OBSERVED if is_history else reserved.FIRST_QUARANTINE
        is_alone = is_history and case.observed.target is None and not case.state.target_id
        if is_alone or not own <= {column.name.lower() for column in info.columns}:
            what = f"{case.table.target}{suffix}, where {case.table.id} would keep its {SIDECARS[suffix]}, exists"
            hint = f"Rename or drop it, or give {case.table.id} another `to`"
            return Stop(f"{what} and was not made by this flow", hint, "to")
    return None


def _history_without_observations(case: Case) -> Stop | None:
    """Versions are derived from observations alone: without observations, a history's versions would be deleted key by
    key. A sidecar is left behind when its table is renamed or restored without it."""
    target, sidecars = case.observed.target, case.observed.sidecars
    if target is None or OBSERVED not in sidecars or sidecars[OBSERVED] is not None:
        return None
    is_empty = target.version is not None and target.rows.value == 0  # created by a run that ended before its commit
    if is_empty or case.lacks_history or case.replaces:
        return None
    there = f"{case.table.target}{OBSERVED}"
    before = str(case.state.definition.get("to", ""))
    is_renamed = before not in ("", str(case.table.target))
    way = f"Rename {before}{OBSERVED}" if is_renamed else f"If the table was renamed, rename its `{OBSERVED}`"
    return Stop(
        f"{case.table.target} is a history, and {there}, which its versions are derived from, does not exist",
        f"{way} to {there}, or restore it; if it is lost, begin a new history under another `to`",
        "to",
    )


def _letters_elsewhere(case: Case) -> Stop | None:
    """Dead letters are to be read again, and the spec no longer says where they are."""
    begun, replay, now = case.begun, case.state.replay, str(letters_of(case.table))
    if begun is not None and begun.interval.letters is not None:
        asked = now if case.is_committed else begun.letters_at
    else:
        asked = replay.place if replay is not None and not case.full_refresh else now
    if asked == now:
        return None
    command = f"`flowctl dlq replay {case.spec_path} {shlex.quote(case.table.id)} --cancel`"
    return Stop(
        f"dead letters of {asked} are to be read again, and `dead_letters` says {now}",
        f"Set `dead_letters: {{to: {asked}}}` until a run has read them, or withdraw it with {command}",
        "dead_letters",
    )


def _no_columns(case: Case) -> Stop | None:
    """No system stores rows without columns. An empty file may still get some."""
    source, table = case.observed.source, case.table
    if source is None or table.columns.add or any(table.columns.takes(column.name) for column in source.columns):
        return None
    if not source.columns:
        hint = f"Give it one, or leave it out: `exclude: [{source.object.parts[-1]}]` for a pattern"
        return None if case.is_glob else Stop(f"{table.source} has no columns", hint, "from")
    return Stop(f"`columns` leaves no column of {table.source}", "Include at least one", "columns")


def _too_many_columns(case: Case) -> Stop | None:
    found, most = known_columns(case), case.rules.most_columns(case.table.mode)
    if found is None or most is None:
        return None
    there = case.observed.target.columns if case.observed.target else ()
    made = (one.column for one in projection(case.table, found, recorded_target(case)))
    columns = {column.name for column in (*made, *there)} | {*own_columns(case.table)}
    if len(columns) <= most:
        return None
    return Stop(
        f"{case.table.target} would have {len(columns):,} columns, and mode {case.table.mode} can write {most:,} there",
        "Leave some out with columns.exclude, or write it to Delta or Iceberg",
        "columns",
    )


def _key_is_not_read(case: Case) -> Stop | None:
    """Keys and the event time must name columns of the target."""
    source, table = case.observed.source, case.table
    if source is None:
        return None
    taken = {table.columns.rename.get(column.name, column.name): column for column in source.columns
             if table.columns.takes(column.name)}  # fmt: skip
    for name in table.key:
        if name not in taken and name not in table.columns.add:
            hint = _renamed_key(case, name) or "Correct `key`"
            return Stop(f'the key column "{name}" is not among the target\'s columns', hint, "key")
    event = table.valid_from
    if table.mode != "scd2" or event in (None, "now"):
        return None
    if event not in taken and event not in table.columns.add:
        return Stop(f'valid_from: "{event}" is not among the target\'s columns', "Correct it", "scd2.valid_from")
    if event in taken and taken[event].type not in (types.TIMESTAMP, types.TIMESTAMP_NTZ, types.DATE):
        kind = types.short(taken[event].type)
        return Stop(f'valid_from: "{event}" is {kind}, not a time', "Name a date or timestamp", "scd2.valid_from")
    return None


def _renamed_key(case: Case, name: str) -> str:
    """How to keep the rows if the key column probably has another name in the source: one of its type is new there."""
    source, table, recorded = case.observed.source, case.table, {column.name: column for column in case.state.schema}
    before = recorded.get({new: old for old, new in table.columns.rename.items()}.get(name, name))
    if source is None or before is None:
        return ""
    new = [one.name for one in source.columns if one.name not in recorded and one.type == before.type
           and table.columns.takes(one.name) and one.name not in table.columns.rename]  # fmt: skip
    if len(new) != 1:
        return ""
    accept = case.state_command("set", "--accept-definition")
    renamed = f"columns: {{rename: {{{new[0]}: {name}}}}}"
    return f'If "{new[0]}" is its new name, write {renamed} and continue with {accept}; otherwise correct `key`'


def _undecidable_expectation(case: Case) -> Stop | None:
    table, source = case.table, case.observed.source
    if not table.expect:
        return None
    made = projection(table, source.columns if source else known_columns(case) or (), recorded_target(case))
    zone = table.cursor.zone if table.cursor else None
    columns = BatchColumns({part.column.name: part.column.type for part in made}, zone)
    refused = ((check, check.refuse(columns)) for check in table.expect)
    return next((Stop(*why, mark=check.mark) for check, why in refused if why), None)


def _own_names_are_taken(case: Case) -> Stop | None:
    source = case.observed.source
    taken = taken_name(case.table, source.columns if source else known_columns(case) or ())
    return Stop(*taken, "columns") if taken else None


def _no_history(case: Case) -> Stop | None:
    """Rows of another mode were accepted or adopted as a history: there are no versions to continue."""
    if not case.lacks_history or case.full_refresh or case.pending:
        return None
    return Stop(
        f"{case.table.target} holds no history of {', '.join(case.table.key)}",
        f"Replace its content with one: --full-refresh {case.table.id}",
        "mode",
    )


def _is_ours(case: Case, target: TableInfo) -> bool:
    """Whether this flow has written, adopted or created the table. Neither a sequence number nor an intent proves it:
    one that was given up or left by an interrupted run may be older than a foreign table."""
    state, commit, intent, refresh = case.state, case.observed.commit, case.state.intent, case.begun_refresh
    if case.is_committed:
        return True
    if refresh is not None and _is_what_begun_writes(target, refresh):
        return True
    if is_moved(case):
        return same_identity(target.identity, state.target_id)
    if state.target_id:
        return True
    if commit is not None and commit.target_id:  # in a database, it may be that of the target before a changed `to`
        return same_identity(target.identity, commit.target_id)
    if intent is None:
        return False
    return target.created_by == intent.id or (intent.target_id != "" and not state.given_up)


def _is_what_begun_writes(target: TableInfo, begun: Intent) -> bool:
    return target.created_by == begun.id or (begun.target_id != "" and same_identity(target.identity, begun.target_id))


def _agrees(case: Case, commit: Commit | None) -> bool:
    state = case.state
    found = (commit.seq, commit.intent_id) if commit else (0, "")
    return found == (state.seq, state.intent_id) or case.is_committed


REASONS: tuple[Reason, ...] = (
    _not_observed,
    _needs_a_stopped_table,
    _needs_an_unlisted_table,
    _needs_an_empty_table,
    _no_source,
    _shared_target,
    _refused_name,
    _coarse_key,
    _foreign_target,
    _foreign_sidecar,
    _target_moved,
    _not_created,
    _history_without_observations,
    stop_if_redefined,
    _letters_elsewhere,
    _no_history,
    appending_twice,
    unread_column,
    unusable_flag,
    unprotected_column,
    taken_over_column,
    _no_columns,
    _too_many_columns,
    _key_is_not_read,
    _own_names_are_taken,
    _undecidable_expectation,
)
