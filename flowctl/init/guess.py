"""Guesses key, cursor and mode of a table from its description: a pure function, in two steps. :func:`questions` says
which columns are worth a query; :func:`decide` takes the answers.

A guess never loses a change silently: where no column shows which rows have changed, all are read in every run. Only
tables whose names are those of logs are appended to without a word about updates, and that is written as a question.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from flowctl.connectors.source import HighWatermark
from flowctl.connectors.survey import Surveyed
from flowctl.init.decision import Decision
from flowctl.init.names import renamed_column
from flowctl.model import types
from flowctl.model.position import CursorPosition
from flowctl.model.table_info import Column, TableInfo
from flowctl.plan.cursors import refuse_newest
from flowctl.spec.spec import Cursor
from flowctl.spec.template import can_be_key
from flowctl.text import counted, elapsed, size, some

#: A table up to this size is read in full in every run without a question.
SMALL_ROWS = 1_000_000
SMALL_BYTES = 250_000_000
#: Columns of a table of which the newest value is looked up without an index.
_LOOKED_UP = 3

_TIMES = (types.TIMESTAMP, types.TIMESTAMP_NTZ)
_INTEGERS = (types.INT16, types.INT32, types.INT64)
_UPDATED = re.compile(r"updat|modif|chang|touch|mtime$|lastupd|lastmod|upd$")
_CREATED = re.compile(r"creat|insert|add(ed)?$|occur|record|logg|receiv|time|date|ts$|at$|when$")
_LOG_TABLES = re.compile(r"(events?|logs?|audits?|history|histories|journals?|messages?|measurements?|readings?)$")

#: The answers for one table: the high watermark of each column that :func:`questions` named.
Answers = Mapping[str, HighWatermark]


@dataclass(frozen=True)
class Setting:
    """What holds for all tables: how the source shows its position, and why the target refuses a column's name."""

    position: Literal["cursor", "files", "offsets", "none"]
    refuses_name: Callable[[str], str | None] = lambda name: None


def questions(table: Surveyed) -> tuple[Column, ...]:
    """Columns whose newest value, and whether any is null, is needed to decide: possible cursors that an index finds,
    or of small tables, and columns of the key that may be null."""
    info = table.info
    if info is None or table.details.refused:
        return ()
    cursors = [column for column in _cursors(table) if _is_cheap(table, column)][:_LOOKED_UP]
    return tuple(dict.fromkeys([*cursors, *_key_columns_with_nulls(table)]))


def decide(id: str, table: Surveyed, answers: Answers, setting: Setting) -> Decision:
    """The entry of one table."""
    info = table.info
    if info is None or table.details.refused:
        return Decision(id, table.object, "truncate", "", format=table.format, left_out=table.details.refused)
    texts = {name: answer.failure.message for name, answer in answers.items() if answer.failure is not None}
    unnamed = [name for name in _to_rename(table, setting) if not can_be_key(name)]
    unnamed += [name for name in texts if not can_be_key(name)]
    table = _without(table, unnamed)
    texts = {name: why for name, why in texts.items() if name not in unnamed}
    rename = _renames(table, setting)
    decided = replace(
        _decide_mode(id, table, info, answers, setting),
        exclude=table.details.unreadable,
        rename=rename,
        as_text=tuple(texts),
        format=table.format,
    )
    decided = replace(decided, key=tuple(rename.get(name, name) for name in decided.key))
    reason = f"{decided.reason}; renamed for the target: {some(list(rename))}" if rename else decided.reason
    questions = [f"read as text: {why}" for why in texts.values()]
    if unreadable := [name for name in table.details.unreadable if name not in unnamed]:
        questions.append(f"left out, as this user may not read them: {some(unreadable)}")
    if unnamed:
        questions.append(f"left out, as a spec cannot rename columns with {{{{ in their names: {some(unnamed)}")
    return replace(decided, reason=reason, decide=(*decided.decide, *questions, *table.notes))


def _without(table: Surveyed, names: Sequence[str]) -> Surveyed:
    unreadable = tuple(dict.fromkeys((*table.details.unreadable, *names)))
    return replace(table, details=replace(table.details, unreadable=unreadable))


def _decide_mode(id: str, table: Surveyed, info: TableInfo, answers: Answers, setting: Setting) -> Decision:
    if setting.position == "files":
        return _of_files(id, table)
    key, about_key = _key(table, answers)
    cursor = next(_usable(table, answers, _is_updated), None)
    if key and cursor:
        reason = f"{about_key}; cursor {cursor.about}"
        return Decision(id, table.object, "merge", reason, key, cursor.name, reads_nulls=cursor.has_nulls)
    appended = next(_usable(table, answers, lambda column: _is_appended(table, column)), None)
    rows, is_small = _rows(info), _is_small(info)
    if appended and not cursor and not appended.has_nulls and (_is_log(table) or not (is_small or key)):
        reason = f"{about_key}; cursor {appended.about}"
        ask = "append reads no row again; if rows are updated or deleted, use mode truncate"
        if key:
            ask = f"append reads no row again; if rows are updated, use mode merge with key: [{', '.join(key)}]"
        return Decision(id, table.object, "append", reason, cursor=appended.name, decide=(ask,))
    if is_small or not key:
        reason = f"{about_key}; no column shows which rows changed: {_all(rows)} are replaced in every run"
        large = "with a column that shows which rows are new, mode append would read only these"
        return Decision(id, table.object, "truncate", reason, decide=() if is_small else (large,))
    reason = f"{about_key}; no column shows which rows changed: {_all(rows)} are read in every run"
    if appended is None or appended.has_nulls:
        return Decision(id, table.object, "merge", reason, key)
    faster = f"if rows are never updated, use mode append with cursor: {{column: {appended.name}}}"
    return Decision(id, table.object, "merge", reason, key, decide=(faster,))


def _of_files(id: str, table: Surveyed) -> Decision:
    if table.is_many:
        return Decision(id, table.object, "append", "many files: each is read once")
    return Decision(id, table.object, "truncate", "one file: replaced in every run")


# Keys


def _key(table: Surveyed, answers: Answers) -> tuple[tuple[str, ...], str]:
    """The columns that identify a row, and what they are."""
    info = table.info
    assert info is not None
    readable = {column.name: column for column in info.columns if column.name not in table.details.unreadable}
    primary = info.primary_key
    if primary and not set(primary) <= set(readable):
        primary = ()
    if primary and (nulls := [name for name in primary if _has_null(answers, name)]):
        return (), f"no key, as the primary key has nulls in {some(nulls)}"
    if primary:
        return primary, f"primary key {', '.join(primary)}"
    unique = [
        index.columns
        for index in table.details.indexes or ()
        if index.is_unique and all(name in readable and not readable[name].nullable for name in index.columns)
    ]
    if unique:
        shortest = min(unique, key=len)
        return shortest, f"unique and not null: {', '.join(shortest)}"
    return (), "no key"


def _key_columns_with_nulls(table: Surveyed) -> list[Column]:
    assert table.info is not None
    keyed = [column for name in table.info.primary_key if (column := table.info.column(name))]
    return [column for column in keyed if column.nullable and column.name not in table.details.unreadable]


def _has_null(answers: Answers, name: str) -> bool:
    return name in answers and answers[name].has_null_cursor


# Cursors


@dataclass(frozen=True)
class _Usable:
    """A column that can be a cursor, and what was seen of it."""

    name: str
    about: str
    has_nulls: bool


def _usable(table: Surveyed, answers: Answers, fits: Callable[[Column], bool]) -> Iterator[_Usable]:
    """Columns that fit, the best first; without those whose values show that no later row would be seen."""
    found = []
    for column in _cursors(table):
        answer = answers.get(column.name)
        if not fits(column) or (answer is not None and not _can_follow(column, answer)):
            continue
        has_nulls = column.nullable and (answer is None or answer.has_null_cursor)
        found.append(_Usable(column.name, _about(table, column, answer), has_nulls))
    return iter(sorted(found, key=lambda one: one.has_nulls))


def _can_follow(column: Column, answer: HighWatermark) -> bool:
    if answer.failure is not None:
        return False
    if not isinstance(answer.position, CursorPosition):
        return not answer.has_null_cursor  # all of them null; an empty table shows nothing
    return refuse_newest(Cursor(column.name), answer.position.at, answer.clock) is None


def _cursors(table: Surveyed) -> list[Column]:
    """Columns that may show which rows are new, the best first."""
    assert table.info is not None
    readable = [column for column in table.info.columns if column.name not in table.details.unreadable]
    fitting = [column for column in readable if _is_updated(column) or _is_appended(table, column)]

    def rank(column: Column) -> tuple[bool, bool, bool, bool]:
        return (
            not _is_updated(column),
            not _is_indexed(table, column.name),
            column.nullable,
            column.name not in table.details.numbered,
        )

    return sorted(fitting, key=rank)


def _is_updated(column: Column) -> bool:
    """A time that says, by its name, when the row was changed last."""
    is_time = column.type in (*_TIMES, types.DATE)
    return is_time and any(_UPDATED.match(word) for word in _words(column.name))


def _is_appended(table: Surveyed, column: Column) -> bool:
    """A value that increases with each new row: a number that the system gives, or a time of creation."""
    if column.name in table.details.numbered:
        return column.type in _INTEGERS
    is_time = column.type in _TIMES and not column.nullable and not _is_updated(column)
    return is_time and any(_CREATED.match(word) for word in _words(column.name))


def _is_indexed(table: Surveyed, name: str) -> bool:
    assert table.info is not None
    leading = {index.columns[0] for index in table.details.indexes or () if index.columns}
    return name in leading | set(table.info.primary_key[:1])


def _is_cheap(table: Surveyed, column: Column) -> bool:
    assert table.info is not None
    return _is_indexed(table, column.name) or _is_small(table.info)


def _about(table: Surveyed, column: Column, answer: HighWatermark | None) -> str:
    """``updated_at: indexed, not null, newest 2 h old``."""
    facts = ["numbered"] if column.name in table.details.numbered else []
    if _is_indexed(table, column.name):
        facts.append("indexed")
    elif table.details.indexes is not None:
        facts.append("not indexed")
    if not column.nullable:
        facts.append("not null")
    elif answer is not None:
        facts.append("null in rows that every run reads" if answer.has_null_cursor else "none null now")
    else:
        facts.append("may be null")
    if answer is not None and isinstance(answer.position, CursorPosition):
        facts.append(_newest(answer.position, answer.clock))
    return f"{column.name}: {', '.join(facts)}"


def _newest(position: CursorPosition, clock: dt.datetime | None) -> str:
    at = position.at.value
    if isinstance(at, dt.datetime) and clock is not None:
        now = clock.astimezone(dt.UTC)
        passed = now - at if at.tzinfo is not None else now.replace(tzinfo=None) - at
        if passed >= dt.timedelta(0):
            return f"newest {elapsed(passed.total_seconds())} old"
        return f"newest {replace(position.at, value=at.replace(microsecond=0)).readable()}"
    return f"newest {position.at.readable()}"


# Sizes and names


def _is_small(info: TableInfo) -> bool:
    """A table of unknown size counts as small: it was created a moment ago, or its source keeps no statistics."""
    rows, length = info.rows.value, info.rows.bytes
    if rows is not None:
        return rows <= SMALL_ROWS
    return length is None or length <= SMALL_BYTES


def _rows(info: TableInfo) -> str:
    if info.rows.value is not None:
        return counted(info.rows.value, "row")
    return size(info.rows.bytes) if info.rows.bytes is not None else ""


def _all(rows: str) -> str:
    return f"all ({rows})" if rows else "all rows"


def _is_log(table: Surveyed) -> bool:
    return any(_LOG_TABLES.fullmatch(word) for word in _words(table.object.parts[-1])[-1:])


def _words(name: str) -> list[str]:
    """``lastUpdated_at`` → ``last``, ``updated``, ``at``."""
    apart = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name)
    return [word.lower() for word in re.split(r"[\W_]+", apart) if word]


def _to_rename(table: Surveyed, setting: Setting) -> list[str]:
    """The columns whose own names the target refuses."""
    assert table.info is not None
    names = [column.name for column in table.info.columns if column.name not in table.details.unreadable]
    return [name for name in names if setting.refuses_name(name)]


def _renames(table: Surveyed, setting: Setting) -> dict[str, str]:
    """A name for each of these."""
    assert table.info is not None
    refused = _to_rename(table, setting)
    taken = [column.name for column in table.info.columns if column.name not in refused]
    renamed: dict[str, str] = {}
    for name in refused:
        renamed[name] = renamed_column(name, [*taken, *renamed.values()])
    return renamed
