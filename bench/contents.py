"""Compares a result with its source. DuckDB, in its own environment, reads both."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

from bench import peers
from bench.case import Contents, Relation, Setting, Verdict

_SHOWN_TYPES = 5


class Unreadable(Exception):
    """The result does not exist, or lacks columns."""


def delta(folder: Path, where: str = "true") -> Relation:
    return Relation(f"delta_scan('{folder}')", where)


def postgres(url: str, table: str, where: str = "true") -> Relation:
    """The password comes from the environment."""
    schema, _, name = table.rpartition(".")
    parts = urlsplit(url)
    address = f"host={parts.hostname} port={parts.port} user={parts.username} dbname={parts.path[1:]}"
    scan = f"postgres_scan('{address}', '{schema or 'public'}', '{name}')"
    return Relation(scan, where, (url, f"{schema or 'public'}.{name}"))


def iceberg(folder: Path) -> Relation:
    """As of the newest metadata file: each commit writes one."""
    written = sorted((folder / "metadata").glob("*.metadata.json"), key=lambda file: file.stat().st_mtime_ns)
    return Relation(f"iceberg_scan('{written[-1] if written else folder}')")


def duckdb(file: Path, table: str) -> Relation:
    return Relation(f"attached.{table}", attach=str(file))


def csv(file: Path, types: Mapping[str, str]) -> Relation:
    return Relation(f"read_csv('{file}', header = true, columns = {json.dumps(dict(types))})")


def parquet(file: Path) -> Relation:
    return Relation(f"read_parquet('{file}')")


def read(relations: Sequence[Relation], amount: str = "", types: Mapping[str, str] | None = None) -> Contents:
    """The contents of all relations together. Values are cast to ``types``, if given, before they are hashed."""
    if why := peers.missing("check"):
        raise peers.NotSetUp(why)
    with tempfile.TemporaryDirectory(prefix="flowctl-bench-") as scratch:
        request = {
            "relations": [{"sql": each.sql, "where": each.where, "attach": each.attach} for each in relations],
            "amount": amount,
            "types": dict(types or {}),
            "scratch": scratch,
        }
        script = str(peers.HERE / "read_contents.py")
        ran = subprocess.run(
            [peers.python("check"), script],
            input=json.dumps(request),
            capture_output=True,
            text=True,
            cwd=scratch,
        )
    if ran.returncode != 0:
        raise Unreadable(ran.stderr.strip().splitlines()[-1][:300] if ran.stderr.strip() else "cannot be read")
    found = Contents(**json.loads(ran.stdout))
    table = relations[-1].table if relations else None
    return replace(found, types={**found.types, **_unbounded(*table)}) if table else found


def _unbounded(url: str, table: str) -> dict[str, str]:
    """Columns declared as NUMERIC without precision, which DuckDB reports as DOUBLE."""
    import psycopg

    query = "SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND atttypid = 1700 AND atttypmod = -1"
    with psycopg.connect(url) as connection:
        return {name: "NUMERIC" for (name,) in connection.execute(query, [table]).fetchall()}


def compare(expected: Contents, found: Contents) -> Verdict:
    """Whether the rows are equal by value; different types are only reported."""
    types = _differences(expected.types, found.types)
    if found.rows != expected.rows:
        return Verdict(False, f"{found.rows:,} rows where {expected.rows:,} are right", types)
    if found.amount != expected.amount:
        return Verdict(False, f"the sum is {found.amount}, right is {expected.amount}", types)
    if found.digest != expected.digest:
        return Verdict(False, "rows and sum agree, values of other columns do not", types)
    return Verdict(True, "", types)


def equals(result: Callable[[Setting], Sequence[Relation]]) -> Callable[[Setting, Path], Verdict]:
    """A check: the result contains each row of the source once, with equal values in all of the source's columns."""

    def check(setting: Setting, _output: Path) -> Verdict:
        assert setting.expected is not None
        try:
            found = read(result(setting), setting.prepared.amount, setting.expected.types)
        except Unreadable as error:
            return Verdict(False, str(error))
        return compare(setting.expected, found)

    return check


def _differences(expected: Mapping[str, str], found: Mapping[str, str]) -> tuple[str, ...]:
    """``DECIMAL(15,2) came as DOUBLE: l_tax, l_discount``, one per pair of types."""
    pairs: dict[tuple[str, str], list[str]] = {}
    for name, kind in expected.items():
        if found.get(name, kind) != kind:
            pairs.setdefault((kind, found[name]), []).append(name)
    return tuple(
        f"{wanted} came as {came}: {', '.join(names[:_SHOWN_TYPES])}"
        + (f" and {len(names) - _SHOWN_TYPES} more" if len(names) > _SHOWN_TYPES else "")
        for (wanted, came), names in pairs.items()
    )
