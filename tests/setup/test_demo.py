"""`make demo`: its data, and the whole of it on the real commands."""

from __future__ import annotations

import csv
import importlib.util
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from flowctl.engine.base import Engine

pytestmark = pytest.mark.server

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def nycflights() -> ModuleType:
    """``scripts/`` is no package; the demo finds its neighbour because it is run from there."""
    spec = importlib.util.spec_from_file_location("nycflights", ROOT / "scripts" / "nycflights.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_source_is_the_whole_package_with_keys_that_are_keys(nycflights: ModuleType, tmp_path: Path) -> None:
    assert nycflights.make(tmp_path) == {
        "airlines": 16,
        "airports": 1_458,
        "planes": 3_322,
        "flights": 336_776,
        "weather": 26_115,
    }
    assert ask(tmp_path, "SELECT count(*), count(DISTINCT time_hour || carrier || '-' || flight) FROM flights") == (
        336_776,
        336_776,
    )
    assert len(list((tmp_path / "reports" / "weather").glob("2013-*.csv"))) == 12
    done = nycflights.change(tmp_path)
    assert len(done) == 7
    assert ask(tmp_path, "SELECT count(*), count(DISTINCT time_hour || carrier || '-' || flight) FROM flights") == (
        337_590,
        337_590,
    )
    assert len(list(weather(tmp_path))) > 26_115


@pytest.mark.full
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("place", ["local[*]", "cluster", "connect_server"])
def test_after_the_demo_the_lake_is_what_the_source_is(
    place: str, request: pytest.FixtureRequest, engine: Engine, tmp_path: Path
) -> None:
    url = place if place.startswith("local") else request.getfixturevalue(place)
    command = [sys.executable, ROOT / "scripts" / "demo.py", tmp_path, url]
    ran = subprocess.run(command, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    spark = engine.session_for("demo")

    def lake(table: str, *expressions: str) -> tuple[Any, ...]:
        return tuple(spark.read.format("delta").load(f"{tmp_path}/lake/{table}").selectExpr(*expressions).first())

    for table, expressions in {
        "flights": ("count(*)", "sum(arr_delay)", "sum(CAST(cancelled AS int))", "max(distance)", "min(tailnum)"),
        "airports": ("count(*)", "max(name)", "sum(alt)"),
        "airlines": ("count(*)", "min(CASE WHEN carrier = 'US' THEN name END)"),
    }.items():
        assert lake(table, *expressions) == ask(tmp_path, f"SELECT {', '.join(expressions)} FROM {table}")
    assert lake("planes", "count(*)", "sum(CAST(is_current AS int))") == (3_322 + 9, 3_322)
    assert lake("weather", "count(*)") == (len(list(weather(tmp_path))),)
    months = "SELECT count(DISTINCT name || month), count(*) FROM flights JOIN airlines USING (carrier)"
    assert lake("delays", "count(*)", "sum(flights)") == ask(tmp_path, f"{months} WHERE arr_delay IS NOT NULL")


def ask(folder: Path, query: str) -> tuple[Any, ...]:
    with closing(sqlite3.connect(folder / "airport.db")) as database:
        return tuple(database.execute(query).fetchone())


def weather(folder: Path) -> Iterator[dict[str, str]]:
    for file in sorted((folder / "reports" / "weather").glob("*.csv")):
        with file.open(encoding="utf-8") as stream:
            yield from csv.DictReader(stream)
