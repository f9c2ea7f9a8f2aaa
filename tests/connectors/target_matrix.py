"""The targets that the contract suite runs on: one factory each, nothing else in the suite knows which it has.

A factory opens a place where a table can be made. ``read`` asks the system itself, by another client than flowctl's,
so that a test sees what any reader sees.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from flowctl.connectors.base import Capabilities, OpenContext
from flowctl.connectors.registry import open as open_connection
from flowctl.connectors.target import Target
from flowctl.diagnostics import Mark
from flowctl.engine.session import has_jvm
from flowctl.model.table_info import ObjectName
from flowctl.spec.spec import Connection
from flowctl.storage.buffer import Buffer
from tests.e2e.targets import SQL_KINDS, Kind, place, quoted, sql_place


@dataclass(frozen=True)
class Place:
    """An open target and the name of a table that is not there yet. ``options`` open the same place again, in another
    process too. ``read(columns)`` gives all rows as an outside reader sees them now; ``execute`` runs somebody
    else's statement. ``untold`` is what a count may be that the system does not tell (-1: it tells all);
    ``takes_parts`` says that executors hand their parts over, and one could be missing."""

    type: str
    options: dict[str, Any]
    target: Target
    object: ObjectName
    read: Callable[[Sequence[str]], list[tuple[Any, ...]]]
    execute: Callable[[str], None]
    untold: int | None = -1
    takes_parts: bool = True

    @property
    def capabilities(self) -> Capabilities:
        return self.target.capabilities


Factory = Callable[[pytest.FixtureRequest, Path, Buffer], AbstractContextManager[Place]]


@contextmanager
def opened(type: str, options: dict[str, Any], scratch: Buffer) -> Iterator[Target]:
    """The target of one connection, opened as a run opens it."""
    connection = Connection("to", type, options, Mark("spec.yaml", 1))
    with open_connection(connection, OpenContext(buffer=scratch)) as connector:
        assert connector.target is not None
        yield connector.target


def _of_database(kind: Kind) -> Factory:
    @contextmanager
    def factory(request: pytest.FixtureRequest, folder: Path, scratch: Buffer) -> Iterator[Place]:
        there = sql_place(kind, folder, request.getfixturevalue).named(f"t {uuid.uuid4().hex[:6]}")
        with opened(kind, dict(there.given), scratch) as target:
            yield Place(
                kind,
                dict(there.given),
                target,
                ObjectName(there.parts),
                lambda columns: there.fetch(f"SELECT {', '.join(map(quoted, columns))} FROM {{table}}"),
                there.run,
            )

    return factory


@contextmanager
def delta(request: pytest.FixtureRequest, folder: Path, scratch: Buffer) -> Iterator[Place]:
    """Its outside reader is Spark; others are asked in `delta/test_readers.py`."""
    spark = request.getfixturevalue("spark")
    space = " " if has_jvm(spark) else "_"  # Sail reaches no path with one
    root, name = folder / "lake", f"t{space}{uuid.uuid4().hex[:6]}"
    table = f"delta.`{root}/{name}`"

    def read(columns: Sequence[str]) -> list[tuple[Any, ...]]:
        content = spark.read.format("delta").load(f"{root}/{name}")
        return [tuple(found) for found in content.select(*(f"`{column}`" for column in columns)).collect()]

    with opened("delta", {"path": str(root)}, scratch) as target:
        yield Place(
            "delta",
            {"path": str(root)},
            target,
            ObjectName((name,)),
            read,
            lambda statement: spark.sql(statement.format(table=table)).collect() and None,
            untold=None,
            takes_parts=False,
        )


@contextmanager
def files(_request: pytest.FixtureRequest, folder: Path, scratch: Buffer) -> Iterator[Place]:
    """Its outside reader follows the manifest."""
    there = place("files", folder).named(f"t {uuid.uuid4().hex[:6]}")
    options = {"path": str(folder / there.options["path"])}

    def refuse(_statement: str) -> None:
        raise NotImplementedError("files run no statements")

    with opened("files", options, scratch) as target:
        yield Place(
            "files",
            options,
            target,
            ObjectName((there.name,)),
            lambda columns: there.fetch(f"SELECT {', '.join(map(quoted, columns))} FROM {{table}}"),
            refuse,
        )


@contextmanager
def iceberg(_request: pytest.FixtureRequest, folder: Path, scratch: Buffer) -> Iterator[Place]:
    """Its outside reader is DuckDB."""
    there = place("iceberg", folder).named(f"t {uuid.uuid4().hex[:6]}")
    options = {"warehouse": str(folder / there.options["warehouse"])}

    def refuse(_statement: str) -> None:
        raise NotImplementedError("DuckDB changes no Iceberg tables without a catalog service")

    with opened("iceberg", options, scratch) as target:
        yield Place(
            "iceberg",
            options,
            target,
            ObjectName((there.name,)),
            lambda columns: there.fetch(f"SELECT {', '.join(map(quoted, columns))} FROM {{table}}"),
            refuse,
            takes_parts=False,
        )


FACTORIES: dict[str, Factory] = {
    "delta": delta,
    "files": files,
    "iceberg": iceberg,
    **{kind: _of_database(kind) for kind in SQL_KINDS},
}
