"""Change streams: a million changes wait in PostgreSQL's log, and are applied in one pass; or only captured."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import psycopg

from bench.case import Case, Command, Competitor, Prepared, Setting, Verdict, World
from bench.contents import equals, postgres
from bench.peers import postgres_program
from bench.programs import debezium, flowctl

_COLUMNS = (
    "id bigint PRIMARY KEY, a int, b bigint, c text, d text, e numeric(12,2), f timestamptz, g date,"
    " h double precision, i boolean"
)
_ROWS = (
    "SELECT n, n % 1000, n * 7, 'customer ' || n, md5(n::text), (n % 100000) / 100.0, now(), current_date, n * 0.5,"
    " n % 2 = 0 FROM generate_series({first}, {last}) n"
)
#: Changes of one transaction.
_AT_ONCE = 1000
_PUBLICATION = "bench_changes"

Change = Callable[[psycopg.Connection[Any], int, int], None]


def _execute(connection: psycopg.Connection[Any], statement: str) -> None:
    connection.execute(statement.encode())


def _insert(connection: psycopg.Connection[Any], first: int, rows: int) -> None:
    _execute(connection, f"INSERT INTO changed {_ROWS.format(first=rows + first, last=rows + first + _AT_ONCE - 1)}")


def _update(connection: psycopg.Connection[Any], first: int, _rows: int) -> None:
    last = first + _AT_ONCE - 1
    _execute(connection, f"UPDATE changed SET a = a + 1, e = e + 1, f = now() WHERE id BETWEEN {first} AND {last}")


def _mix(connection: psycopg.Connection[Any], first: int, rows: int) -> None:
    """70 % updates, 20 % inserts, 10 % deletions."""
    _execute(connection, f"UPDATE changed SET a = a + 1, e = e + 1 WHERE id BETWEEN {first} AND {first + 699}")
    _execute(connection, f"DELETE FROM changed WHERE id BETWEEN {first + 700} AND {first + 799}")
    _execute(connection, f"INSERT INTO changed {_ROWS.format(first=rows + first, last=rows + first + 199)}")


def _prepare(world: World) -> Prepared:
    rows = world.count(1_000_000) // _AT_ONCE * _AT_ONCE
    with psycopg.connect(world.postgres, autocommit=True) as connection:
        _execute(connection, f"CREATE TABLE changed ({_COLUMNS})")
        _execute(connection, f"INSERT INTO changed {_ROWS.format(first=1, last=rows)}")
        _execute(connection, f"CREATE PUBLICATION {_PUBLICATION} FOR TABLE changed")
    facts = f"{rows:,} changes in transactions of {_AT_ONCE:,}, 10 mixed columns, over {rows:,} rows"
    return Prepared(rows, facts, (postgres(world.postgres, "changed"),), "e")


def _change(how: Change) -> Callable[[World], None]:
    def change(world: World) -> None:
        with psycopg.connect(world.postgres) as connection:
            rows = connection.execute("SELECT count(*) FROM changed").fetchall()[0][0]
            for first in range(1, rows, _AT_ONCE):
                how(connection, first, rows)
                connection.commit()

    return change


def _slot(setting: Setting) -> str:
    return f"bench_{setting.folder.name}"[:60]


def _spec(setting: Setting) -> Mapping[str, Any]:
    stream = {"from": "pg", "slot": _slot(setting), "publication": {"name": _PUBLICATION, "manage": False}}
    return {
        "connections": {"pg": flowctl.postgres(setting.world.postgres), "lake": flowctl.LAKE},
        "streams": {"changes": stream},
        "tables": {"changed": {"from": "changes:public.changed", "to": "lake:changed", "mode": "merge"}},
    }


def _again(command: Callable[[Setting], Command]) -> Callable[[Setting], Command]:
    """The command with its slot put back to where it was after the load: a copy is made before the first time."""

    def with_slot(setting: Setting) -> Command:
        slot, found = _slot(setting), command(setting)
        there = f"EXISTS (SELECT FROM pg_replication_slots WHERE slot_name = '{slot}_kept')"
        keep = f"SELECT pg_copy_logical_replication_slot('{slot}', '{slot}_kept') WHERE NOT {there}"
        drop, copy = (
            f"SELECT pg_drop_replication_slot('{slot}')",
            f"pg_copy_logical_replication_slot('{slot}_kept', '{slot}')",
        )
        psql = f"{postgres_program('psql')} -qAt -o /dev/null '{setting.world.postgres}'"
        script = f'{psql} -c "{keep}" -c "{drop}" -c "SELECT {copy}" && exec "$@"'
        return Command(("sh", "-c", script, "sh", *found.argv), found.cwd, found.env, found.scratch)

    return with_slot


def _captured_only(setting: Setting) -> Command:
    file = flowctl.write(setting, _spec, "sail")
    return Command((sys.executable, "-m", "bench.programs.capture", str(file), "changes"), cwd=Path.cwd())


def _counted(setting: Setting, output: Path) -> Verdict:
    said = output.read_text().strip().splitlines()[-1:]
    wanted = str(setting.prepared.rows)
    return Verdict(said == [wanted], "" if said == [wanted] else f"{said} changes where {wanted} are right")


def _debezium_slot(setting: Setting) -> Command:
    create = f"SELECT pg_create_logical_replication_slot('{_slot(setting)}', 'pgoutput')"
    return Command((postgres_program("psql"), "-qAt", setting.world.postgres, "-c", create), cwd=setting.folder)


def _debezium(setting: Setting) -> Command:
    return debezium.capture(_slot(setting), _PUBLICATION, "public.changed")(setting)


def _competitors() -> tuple[Competitor, ...]:
    on_spark, on_sail = flowctl.apply(_spec), flowctl.apply(_spec, lambda _: "sail")
    checked = equals(flowctl.in_lake("changed"))
    return (
        Competitor("flowctl", f"Apache Spark; {flowctl.LOCAL}", _again(on_spark), checked, on_sail, ours=True),
        Competitor("flowctl on Sail", "`spark: {url: sail}`", _again(on_sail), checked, on_sail, ours=True),
        Competitor(
            "flowctl, captured only",
            "landed as Parquet, applied to no table",
            _again(_captured_only),
            _counted,
            on_sail,
            ours=True,
            compared=False,
        ),
        Competitor(
            "Debezium, captured only",
            "the embedded engine 3.4.1, pgoutput, into a file of JSON lines without schemas",
            _again(_debezium),
            _counted,
            _debezium_slot,
            missing=debezium.missing,
            compared=False,
        ),
    )


def _case(name: str, title: str, says: str, how: Change) -> Case:
    return Case(
        name=name,
        title=title,
        says=f"{says} The table was loaded before, unmeasured. The log is the server's, on the same two cores.",
        prepare=_prepare,
        change=_change(how),
        needs=("postgres",),
        competitors=_competitors(),
        notes=("Captured only: no target is written, so these are not compared with the others.",),
        longest=1200.0,
    )


INSERTS = _case("stream-inserts", "Change stream, inserts", "Inserts only, applied by merge to Delta.", _insert)
UPDATES = _case("stream-updates", "Change stream, updates", "Updates only, applied by merge to Delta.", _update)
_SHARES = "70 % updates, 20 % inserts, 10 % deletions, applied by merge to Delta."
MIXED = _case("stream-mixed", "Change stream, mixed", _SHARES, _mix)
