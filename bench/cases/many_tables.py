"""Many tables with little or no work each: a scheduled run, a first load, and planning or validating a large spec."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench import sources
from bench.case import AtMostTimes, Case, Competitor, Prepared, Relation, Setting, Verdict, Within, World
from bench.contents import equals, postgres
from bench.programs import dlt, flowctl

_ROWS = 1_000


def _names(count: int) -> list[str]:
    return [sources.small_table(number) for number in range(count)]


def _spec(schema: str, mode: Mapping[str, Any]) -> Callable[[Setting], Mapping[str, Any]]:
    """One pattern for all tables of a schema."""

    def spec(setting: Setting) -> Mapping[str, Any]:
        return {
            "connections": {"pg": flowctl.postgres(setting.world.postgres), "lake": flowctl.LAKE},
            "tables": {"${table}": {"from": f"pg:{schema}.*", "to": "lake", **mode}},
        }

    return spec


def _in_lakes(place: Callable[[str], Callable[[Setting], tuple[Relation, ...]]], count: int) -> Any:
    """A check of all tables together."""

    def relations(setting: Setting) -> list[Relation]:
        return [each for name in _names(setting.world.count(count)) for each in place(name)(setting)]

    return equals(relations)


def _of_schema(world: World, schema: str, count: int) -> tuple[Relation, ...]:
    return tuple(postgres(world.postgres, f"{schema}.{name}") for name in _names(count))


# --- nothing to do -----------------------------------------------------------------------------------------------

_IDLE_TABLES = 20
_MERGE = {"mode": "merge", "key": ["id"], "cursor": {"column": "updated_at"}}
_IDLE = _spec("shop", _MERGE)


def _prepare_idle(world: World) -> Prepared:
    count = world.count(_IDLE_TABLES)
    sources.small_tables(world, "shop", count, _ROWS)
    return Prepared(0, f"{count} tables of {_ROWS:,} rows", _of_schema(world, "shop", count), "amount")


def _dlt_idle(setting: Setting) -> Mapping[str, Any]:
    names = _names(setting.world.count(_IDLE_TABLES))
    merge = {"key": "id", "cursor": "updated_at", "write": {"disposition": "merge", "strategy": "upsert"}}
    return {"source": setting.world.postgres, "schema": "shop", "tables": names, **merge}


NOTHING_TO_DO = Case(
    name="nothing-to-do",
    title="Nothing to do",
    says="PostgreSQL → Delta, tables with a key and a cursor that were loaded before and have not changed since.",
    prepare=_prepare_idle,
    needs=("postgres",),
    competitors=(
        flowctl.on_spark(_IDLE, load=flowctl.apply(_IDLE), check=_in_lakes(flowctl.in_lake, _IDLE_TABLES)),
        Competitor(
            "dlt, pyarrow",
            f"{dlt.SQL}, backend pyarrow, `incremental`; merge by `upsert`, {dlt.DELTA}",
            dlt.load(_dlt_idle),
            _in_lakes(dlt.in_lake, _IDLE_TABLES),
            dlt.load(_dlt_idle),
            missing=dlt.missing,
        ),
    ),
    targets=(Within("flowctl", 1.5),),
)

# --- many small tables -------------------------------------------------------------------------------------------

_FEW, _MANY = 10, 100
_TRUNCATE = {"mode": "truncate"}


def _prepare_small(world: World) -> Prepared:
    few, many = world.count(_FEW), world.count(_MANY)
    sources.small_tables(world, "few", few, _ROWS)
    sources.small_tables(world, "many", many, _ROWS)
    facts = f"{many} tables and {few} tables of {_ROWS:,} rows; rows/s counts the {many}"
    return Prepared(many * _ROWS, facts, _of_schema(world, "many", many), "amount")


def _all_of(count: int) -> Callable[[Setting, Path], Verdict]:
    """``few`` contains the first tables of ``many``; only the tables of ``many`` are compared with their source."""
    if count == _MANY:
        return _in_lakes(flowctl.in_lake, count)  # type: ignore[no-any-return]

    def check(setting: Setting, _output: Path) -> Verdict:
        there = [name for name in _names(setting.world.count(count)) if (setting.folder / "lake" / name).is_dir()]
        wanted = setting.world.count(count)
        return Verdict(len(there) == wanted, "" if len(there) == wanted else f"{len(there)} of {wanted} tables")

    return check


def _connect(setting: Setting) -> str:
    return setting.world.connect


def _small(schema: str, count: int) -> tuple[Competitor, ...]:
    spec = _spec(schema, _TRUNCATE)
    how = "all in one apply"
    return (
        Competitor(
            f"flowctl, {count} tables",
            f"{how}; Apache Spark in the process' own JVM, started within the time",
            flowctl.apply(spec),
            _all_of(count),
            ours=True,
            compared=count == _MANY,
        ),
        Competitor(
            f"flowctl on Connect, {count} tables",
            f"{how}; a Spark Connect server that is warm: the session is up",
            flowctl.apply(spec, _connect),
            _all_of(count),
            ours=True,
            compared=count == _MANY,
            rehearsals=1,
        ),
        Competitor(
            f"flowctl on Sail, {count} tables",
            f"{how}; `spark: {{url: sail}}`, started within the time",
            flowctl.apply(spec, lambda _: "sail"),
            _all_of(count),
            ours=True,
            compared=count == _MANY,
        ),
    )


def _dlt_small(setting: Setting) -> Mapping[str, Any]:
    return {"source": setting.world.postgres, "schema": "many", "tables": _names(setting.world.count(_MANY))}


SMALL_TABLES = Case(
    name="small-tables",
    title="100 small tables against 10",
    says="PostgreSQL → Delta, all tables are created. At scales below 1 there are fewer.",
    prepare=_prepare_small,
    needs=("postgres", "connect"),
    competitors=(
        *_small("many", _MANY),
        *_small("few", _FEW),
        Competitor(
            "dlt, pyarrow, 100 tables",
            f"{dlt.SQL}, backend pyarrow, `replace`; {dlt.DELTA}",
            dlt.load(_dlt_small),
            _in_lakes(dlt.in_lake, _MANY),
            missing=dlt.missing,
        ),
    ),
    targets=(AtMostTimes("flowctl on Connect, 100 tables", 3, of="flowctl on Connect, 10 tables"),),
)

# --- a large spec ------------------------------------------------------------------------------------------------

_LARGE = 500


def _one_by_one(setting: Setting) -> Mapping[str, Any]:
    """A spec with a separate entry for every table, as in generated or long-lived specs."""
    checks = [{"column": "id", "not_null": True}, {"sql": "amount >= 0", "on_fail": "warn"}]
    return {
        "connections": {
            "pg": flowctl.postgres(setting.world.postgres or "postgresql://etl@localhost:5432/shop"),
            "lake": flowctl.LAKE,
        },
        "defaults": {"to": "lake"},
        "tables": {
            name: {"from": f"pg:shop.{name}", **_MERGE, "expect": checks}
            for name in _names(setting.world.count(_LARGE))
        },
    }


def _validate(setting: Setting) -> Any:
    flowctl.write(setting, _one_by_one)
    return flowctl.flowctl(setting, "validate", "flow.yaml")


def _plan(setting: Setting) -> Any:
    return flowctl.flowctl(setting, "plan", "flow.yaml", "--detailed-exitcode")


def _says(text: str) -> Callable[[Setting, Path], Verdict]:
    """Checks that the output contains ``text`` with the number of tables; the exit code has already been checked."""

    def check(setting: Setting, output: Path) -> Verdict:
        said = output.read_text(errors="replace")
        right = text.format(setting.world.count(_LARGE)) in said
        return Verdict(right, "" if right else f"it said: {' / '.join(said.splitlines()[-2:])[:200]}")

    return check


def _prepare_spec(world: World) -> Prepared:
    return Prepared(0, f"{world.count(_LARGE)} tables")


def _prepare_plan(world: World) -> Prepared:
    sources.small_tables(world, "shop", world.count(_LARGE), rows=10)
    return Prepared(0, f"{world.count(_LARGE)} tables of 10 rows")


VALIDATE = Case(
    name="validate",
    title="Validate 500 tables",
    says="`flowctl validate`, each table with an entry of its own, a cursor, and two expectations. Offline.",
    prepare=_prepare_spec,
    competitors=(Competitor("flowctl", flowctl.LOCAL, _validate, _says("{} tables"), ours=True),),
    targets=(Within("flowctl", 1),),
)

PLAN = Case(
    name="plan",
    title="Plan 500 tables, nothing changed",
    says="`flowctl plan`, PostgreSQL → Delta, the same spec, after all tables were loaded.",
    prepare=_prepare_plan,
    needs=("postgres",),
    competitors=(
        Competitor("flowctl", flowctl.LOCAL, _plan, _says("{} up to date"), flowctl.apply(_one_by_one), ours=True),
    ),
    targets=(Within("flowctl", 3),),
)
