"""A flow in a folder of its own, driven through the command line as a user does, and its tables read by value."""

from __future__ import annotations

import datetime as dt
import importlib
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pyarrow as pa

Row = tuple[Any, ...]


@dataclass(frozen=True)
class Done:
    """How one command ended."""

    code: int
    out: str
    err: str

    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def words(self) -> str:
        """All that was said, as one line: paragraphs are wrapped."""
        return " ".join(f"{self.out} {self.err}".split())


@dataclass
class Flow:
    """``folder`` holds ``flow.yaml`` and everything local it names. ``env`` is added to the process's own; ``program``
    is what Python runs."""

    folder: Path
    env: dict[str, str] = field(default_factory=dict)
    program: Sequence[str] = ("-m", "flowctl")

    def __post_init__(self) -> None:
        self.env = {**self.env}  # several flows may be given the same, and a test may add to its own

    @property
    def spec(self) -> Path:
        return self.folder / "flow.yaml"

    def write(self, text: str) -> None:
        self.spec.write_text(text)

    def run(self, *args: str, env: Mapping[str, str] | None = None, expect: int | None = None) -> Done:
        """``flowctl ARGS`` to its end. ``expect``: the exit code it must have, output shown otherwise."""
        process = self.start(*args, env=env)
        out, err = process.communicate(timeout=900)
        done = Done(process.returncode, out, err)
        if expect is not None:
            assert done.code == expect, f"flowctl {' '.join(args)}: exit {done.code}\n{out}\n{err}"
        return done

    def start(
        self, *args: str, env: Mapping[str, str] | None = None, output: IO[str] | None = None
    ) -> subprocess.Popen[str]:
        """``output`` gets all that it says; without, read its pipes before they are full (64 KiB)."""
        command = [sys.executable, *self.program, *args]
        environment = {**os.environ, **self.env, **(env or {})}
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=environment,
            stdout=output or subprocess.PIPE,
            stderr=output or subprocess.PIPE,
            text=True,
        )

    def apply(self, *args: str, env: Mapping[str, str] | None = None, expect: int | None = 0) -> Done:
        return self.run("apply", "flow.yaml", *args, env=env, expect=expect)

    def plan(self, *args: str, expect: int | None = 0) -> dict[str, Any]:
        """The plan's JSON."""
        document: dict[str, Any] = self.run("plan", "flow.yaml", "--format", "json", *args, expect=expect).json()
        return document

    def actions(self, *args: str) -> dict[str, str]:
        """What the plan would do, by table."""
        return {step["id"]: step["action"] for step in self.plan(*args, expect=None)["steps"]}


def wait_until_stopped(process: subprocess.Popen[str]) -> None:
    """By SIGSTOP."""
    while process.poll() is None:
        if Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T":
            return
        time.sleep(0.05)
    raise AssertionError(process.communicate())


def end_of_stopped(process: subprocess.Popen[str], seconds: float = 120.0) -> tuple[str, str]:
    """Continues a process that SIGSTOP has stopped, and says what it wrote once it has ended. A retry reaches the step
    at which it stops once more."""
    until = time.monotonic() + seconds
    while process.poll() is None:
        assert time.monotonic() < until, "it did not end in time"
        process.send_signal(signal.SIGCONT)
        time.sleep(0.2)
    return process.communicate()


def sqlite_rows(path: Path, query: str) -> list[Row]:
    connection = sqlite3.connect(path, timeout=30)
    try:
        return sorted(connection.execute(query).fetchall(), key=repr)
    finally:
        connection.close()


def sqlite_script(path: Path, script: str) -> None:
    connection = sqlite3.connect(path, timeout=30)
    try:
        connection.executescript(script)
    finally:
        connection.close()


def duckdb_rows(path: Path, statement: str) -> list[Row]:
    """Also of a statement that changes something; moments with their zone."""
    import duckdb

    from flowctl.connectors.duckdb.database import SETTINGS

    with duckdb.connect(path, config=SETTINGS) as connection:  # as flowctl, which may have it open in this process
        connection.execute("SET TimeZone = 'UTC'")
        rows = connection.execute(statement).to_arrow_table().to_pylist()
    return sorted((tuple(row.values()) for row in rows), key=repr)


def newest_manifest(folder: Path) -> Mapping[str, Any]:
    """Of a table that is written as files; there must be one."""
    found: Mapping[str, Any] = json.loads(max((folder / "_flowctl/commits").glob("*.json")).read_text())
    return found


def files_query(folder: Path, query: str) -> list[Row]:
    """The rows of ``query``, in which ``t`` is a table that is written as Parquet files, as a reader that follows its
    manifest sees it now."""
    import duckdb

    paths = [f"{folder}/{file['path']}" for file in newest_manifest(folder)["files"]]
    if not paths:
        return []
    with duckdb.connect() as connection:
        read = connection.read_parquet(paths, union_by_name=True)
        rows = read.query("t", query).to_arrow_table().to_pylist()
    return sorted((tuple(row.values()) for row in rows), key=repr)


def postgres_rows(url: str, query: str) -> list[Row]:
    import psycopg

    with psycopg.connect(url) as connection:
        return sorted(connection.execute(query).fetchall(), key=repr)


def mysql_rows(url: str, script: str) -> list[Row]:
    """The rows of the last of some statements, which name columns in double quotes; booleans are integers."""
    from urllib.parse import urlsplit

    import pymysql
    from pymysql.constants import CLIENT

    there = urlsplit(url)
    connection = pymysql.connect(
        host=there.hostname,
        port=there.port or 3306,
        user=there.username,
        password=there.password or "",
        database=there.path.strip("/"),
        client_flag=CLIENT.MULTI_STATEMENTS,
        init_command="SET sql_mode = 'ANSI_QUOTES,STRICT_ALL_TABLES', time_zone = '+00:00'",
        autocommit=True,
    )
    with connection, connection.cursor() as cursor:
        cursor.execute(script)
        rows = list(cursor.fetchall())
        while cursor.nextset():
            rows = list(cursor.fetchall())
    return sorted(rows, key=repr)


def delta_rows(path: Path, columns: Sequence[str]) -> list[Row]:
    listed = ", ".join(f'"{name}"' for name in columns)
    return delta_query(path, f"SELECT {listed} FROM t")


def delta_query(path: Path, query: str) -> list[Row]:
    """The rows of ``query``, in which the table is ``t``, as another reader of Delta sees them; moments without their
    zone, which is UTC."""
    from deltalake import DeltaTable, QueryBuilder

    found = QueryBuilder().register("t", DeltaTable(str(path))).execute(query)
    rows = pa.table(found.read_all()).to_pylist()
    return sorted((tuple(_without_zone(value) for value in row.values()) for row in rows), key=repr)


def iceberg_query(table: Path, query: str) -> list[Row]:
    """The rows of ``query`` of ``{table}``, an Iceberg table in a Hadoop catalog, as DuckDB reads its newest metadata;
    moments without their zone, which is UTC."""
    import duckdb

    metadata = max((table / "metadata").glob("v*.metadata.json"), key=lambda path: int(path.name[1:].split(".")[0]))
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as connection:
        for name in ("avro", "iceberg"):
            package = importlib.import_module(f"duckdb_extension_{name}")
            (extension,) = Path(package.__path__[0]).glob(f"extensions/*/{name}.duckdb_extension")
            connection.execute(f"LOAD '{extension}'")
        connection.execute("SET timezone = 'UTC'")
        at = str(metadata).replace("'", "''")
        found = connection.execute(query.replace("{table}", f"iceberg_scan('{at}')")).to_arrow_table()
    columns = [column.to_pylist() for column in found.columns]
    rows = (tuple(_without_zone(value) for value in row) for row in zip(*columns, strict=True))
    return sorted(rows, key=repr)


def _without_zone(value: object) -> object:
    return value.astimezone(dt.UTC).replace(tzinfo=None) if isinstance(value, dt.datetime) and value.tzinfo else value
