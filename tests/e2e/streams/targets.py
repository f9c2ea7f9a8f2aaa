"""Whether targets have what their source has, by value; readers that look at all of them while they are written."""

from __future__ import annotations

import datetime as dt
import itertools
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import psycopg
import pyarrow as pa
import pymysql

from tests.e2e.flows import sqlite_rows
from tests.e2e.streams.sources import Oracle, database_of
from tests.e2e.streams.workload import REFERENCES, TABLES
from tests.e2e.target_place import TargetPlace

Row = tuple[Any, ...]


def source_columns(url: str, table: str) -> list[str]:
    return database_of(url).columns(table)


def source_rows(url: str, table: str, columns: Sequence[str] | None = None) -> list[Row]:
    """As text, which is the same for every reader."""
    listed = ", ".join(f'"{name}"' for name in columns or source_columns(url, table))
    name = table if "." in table else f'"{table}"'
    found = database_of(url).run(f"SELECT {listed} FROM {name}")
    return sorted((tuple(map(_text, row)) for row in found), key=repr)


class Readable(Protocol):
    def rows(self, table: str, columns: Sequence[str], where: str = "") -> list[Row]:
        """As text, which is the same for every reader."""

    def dicts(self, table: str, columns: Sequence[str], where: str = "") -> list[dict[str, Any]]: ...


@dataclass(frozen=True)
class DwPlace:
    """The target in the server of the source at ``url``."""

    url: str

    def rows(self, table: str, columns: Sequence[str]) -> list[Row]:
        return source_rows(self.url, database_of(self.url).within_dw(table), columns)


@dataclass(frozen=True)
class DeltaPlace:
    """Tables below a folder, or a URL with its ``storage_options``."""

    root: Path | str
    storage_options: Mapping[str, str] | None = None

    def rows(self, table: str, columns: Sequence[str], where: str = "") -> list[Row]:
        return sorted((tuple(map(_text, row.values())) for row in self.dicts(table, columns, where)), key=repr)

    def dicts(self, table: str, columns: Sequence[str], where: str = "") -> list[dict[str, Any]]:
        listed = ", ".join(f'"{name}"' for name in columns)
        return self.query(table, f"SELECT {listed} FROM t {where}")

    def query(self, table: str, sql: str) -> list[dict[str, Any]]:
        """``sql`` calls the table ``t``."""
        from deltalake import DeltaTable, QueryBuilder

        options = dict(self.storage_options) if self.storage_options else None
        there = DeltaTable(f"{self.root}/{table}", storage_options=options)
        found = QueryBuilder().register("t", there).execute(sql)
        rows: list[dict[str, Any]] = pa.table(found.read_all()).to_pylist()
        return rows


@dataclass(frozen=True)
class SqlitePlace:
    file: Path

    def rows(self, table: str, columns: Sequence[str]) -> list[Row]:
        listed = ", ".join(f'"{name}"' for name in columns)
        return sorted(
            (tuple(map(_text, row)) for row in sqlite_rows(self.file, f"SELECT {listed} FROM {table}")), key=repr
        )


@dataclass(frozen=True)
class PlaceOfKind:
    """Tables of a kind that tests of other flows know, too."""

    place: TargetPlace

    def rows(self, table: str, columns: Sequence[str], where: str = "") -> list[Row]:
        return sorted((tuple(map(_text, row.values())) for row in self.dicts(table, columns, where)), key=repr)

    def dicts(self, table: str, columns: Sequence[str], where: str = "") -> list[dict[str, Any]]:
        listed = ", ".join(f'"{name}"' for name in columns)
        found = self.place.named(table).fetch(f"SELECT {listed} FROM {{table}} {where}")
        return [dict(zip(columns, row, strict=True)) for row in found]


def _text(value: Any) -> str | None:
    """One form for what readers return in different ones."""
    match value:
        case None:
            return None
        case bool():
            return str(int(value))
        case dt.datetime():
            moment = value.astimezone(dt.UTC).replace(tzinfo=None) if value.tzinfo else value
            return moment.isoformat(sep=" ")
        case float():
            return repr(value)
        case str() if re.fullmatch(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d+)?(\+00:00|Z)?", value):
            return dt.datetime.fromisoformat(value).replace(tzinfo=None).isoformat(sep=" ")
        case _:
            return str(value)


def must_equal(url: str, place: Any, tables: Sequence[str] = TABLES, names: Mapping[str, str] | None = None) -> None:
    for table in tables:
        columns = source_columns(url, table)
        found, expected = place.rows((names or {}).get(table, table), columns), source_rows(url, table, columns)
        _compare(f"{table} in {place}", found, expected)


def are_equal(url: str, *places: Any, tables: Sequence[str] = TABLES) -> bool:
    """As :func:`must_equal`, while targets are written: False too if a table is missing."""
    try:
        for place in places:
            must_equal(url, place, tables)
    except Exception:  # noqa: BLE001 - not yet: a table is missing, or rows
        return False
    return True


def slots(url: str) -> list[str]:
    """The replication slots of this database."""
    query = "SELECT slot_name FROM pg_replication_slots WHERE database = current_database()"
    return [name for (name,) in database_of(url).run(query)]


def _compare(what: str, found: list[Row], expected: list[Row]) -> None:
    if found != expected:
        missing, extra = set(expected) - set(found), set(found) - set(expected)
        shown = {"missing": _short(missing), "extra": _short(extra), "rows": (len(expected), len(found))}
        raise AssertionError(f"{what}: {json.dumps(shown, default=str)}")


def _short(rows: set[Row]) -> list[Any]:
    return [[value[:40] if isinstance(value, str) else value for value in row] for row in sorted(rows, key=repr)[:4]]


def has_begun(url: str) -> bool:
    """Whether each table of the target in the source's server has had its first commit: MySQL shows a new table before
    that, without rows."""
    database = database_of(url)
    try:
        return all(
            database.run(f"SELECT count(*) FROM {database.within_dw(name)}") != [(0,)]
            for name in {name for child, _, parent in REFERENCES for name in (child, parent)}
        )
    except (psycopg.errors.UndefinedTable, pymysql.err.ProgrammingError):
        return False


def orphans(url: str) -> list[str]:
    """References without a parent in one moment of the target in the source's server."""
    found, database = [], database_of(url)
    with database.session() as session:
        session.execute(database.one_moment)
        for child, column, parent in REFERENCES:
            query = (
                f"SELECT count(*) FROM {database.within_dw(child)} c WHERE NOT EXISTS"
                f" (SELECT 1 FROM {database.within_dw(parent)} p WHERE p.id = c.{column})"
            )
            ((count,),) = session.execute(query).fetchall()
            if count:
                found.append(f"{count} of {child} without {parent}")
    return found


def cut_orphans(lake: Path) -> list[str] | None:
    """As :func:`orphans`, of a lake as its newest cut shows it; None if there is no cut yet."""
    from deltalake import DeltaTable, QueryBuilder

    cuts = sorted(lake.glob("_flowctl/cuts/*/*.json"), key=lambda file: int(file.stem))
    if not cuts:
        return None
    named = json.loads(cuts[-1].read_text())["tables"].values()
    versions = {table["parts"][-1]: table["version"] for table in named}
    found = []
    for child, column, parent in REFERENCES:
        if child not in versions or parent not in versions:
            continue
        query = QueryBuilder()
        for name in (child, parent):
            query = query.register(name, DeltaTable(str(lake / name), version=versions[name]))
        sql = f'SELECT count(*) AS n FROM {child} c WHERE c."{column}" NOT IN (SELECT id FROM {parent})'
        (row,) = pa.table(query.execute(sql).read_all()).to_pylist()
        if row["n"]:
            found.append(f"{cuts[-1].name}: {row['n']} of {child} without {parent}")
    return found


def must_have_every_change(oracle: Oracle, place: Readable, tables: Mapping[str, str]) -> None:
    """``tables`` maps source tables to targets that append their changes. The server's own decoder says what they are:
    each must be there once, and in this order."""
    expected: dict[str, list[tuple[str, str]]] = {table: [] for table in tables}
    for table, op, key in oracle.changes():
        if table in expected:
            expected[table].append((op, key))
    for table, target in tables.items():
        rows = logged(place, target, ["_op", "id"])
        found = [(op, str(id) if id is not None else "") for op, id in rows]
        assert found == expected[table], f"{table}: {len(found)} changes, expected {len(expected[table])}"


def logged(place: Readable, table: str, columns: Sequence[str]) -> list[Row]:
    """The changes that a table which appends them has, in the order of the source."""
    rows = place.dicts(table, [*dict.fromkeys([*columns, "_op", "_commit_lsn", "_seq"])], "WHERE _op <> 'R'")
    rows.sort(key=lambda row: (_lsn(row["_commit_lsn"]), row["_seq"]))
    return [tuple(row[name] for name in columns) for row in rows]


def _lsn(text: str) -> int:
    high, has_parts, low = text.partition("/")
    if not has_parts:
        return int(text)
    return int(high, 16) << 32 | int(low, 16)


def must_be_marked(url: str, place: Readable, table: str, target: str) -> None:
    """Live rows equal the source's; others are marked."""
    columns = source_columns(url, table)
    _compare(target, place.rows(target, columns, "WHERE _deleted_at IS NULL"), source_rows(url, table, columns))


def must_be_history(url: str, place: Readable, table: str, target: str, key: Sequence[str]) -> None:
    """Current versions equal the source's rows; versions of a key do not overlap, and at most the last is current."""
    columns = source_columns(url, table)
    _compare(target, place.rows(target, columns, "WHERE is_current"), source_rows(url, table, columns))
    versions: dict[Row, list[dict[str, Any]]] = {}
    for row in place.dicts(target, [*key, "valid_from", "valid_to", "is_current"]):
        versions.setdefault(tuple(row[name] for name in key), []).append(row)
    for its in versions.values():
        its.sort(key=lambda row: row["valid_from"])
        for one, following in itertools.pairwise(its):
            assert one["valid_to"] is not None and one["valid_to"] <= following["valid_from"] and not one["is_current"]
