"""A large table with a small change: merge, scd2, and deleted rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bench import sources
from bench.case import Case, Competitor, Prepared, Relation, Setting, Verdict, Within, World
from bench.contents import Unreadable, equals, postgres, read
from bench.programs import dlt, flowctl, pyspark

_KEY = "o_orderkey"
_CHANGED = f"updated_at >= timestamp '{sources.CHANGED_SINCE}'"
_INSERTS = (
    "INSERT INTO orders SELECT (o_orderkey + (SELECT max(o_orderkey) FROM orders)), o_custkey, o_orderstatus,"
    f" o_totalprice, o_orderdate, o_orderpriority, o_clerk, o_shippriority, o_comment,"
    f" timestamp '{sources.CHANGED_SINCE}' + (o_orderkey % 86400 + 1) * interval '1 second'"
    f" FROM orders WHERE o_orderkey IN ({sources.every(200)})"
)


def _prepare(what: str) -> Callable[[World], Prepared]:
    def prepare(world: World) -> Prepared:
        rows = sources.orders(world)
        changed = rows // 100
        facts = f"{changed:,} {what} of {rows:,} rows of TPC-H `orders`, evenly spread; rows/s counts the {changed:,}"
        return Prepared(changed, facts, (postgres(world.postgres, "orders"),), "o_totalprice")

    return prepare


def _table(**more: Any) -> Callable[[Setting], Mapping[str, Any]]:
    """A spec with a cursor and a key, and the keys in ``more``."""

    def spec(setting: Setting) -> Mapping[str, Any]:
        cursor = {"key": [_KEY], "cursor": {"column": "updated_at"}}
        return {
            "connections": {"pg": flowctl.postgres(setting.world.postgres), "lake": flowctl.LAKE},
            "tables": {"orders": {"from": "pg:public.orders", "to": "lake", **cursor, **more}},
        }

    return spec


def _ours(spec: Callable[[Setting], Mapping[str, Any]], check: Callable[[Setting, Path], Verdict]) -> list[Competitor]:
    def connect(setting: Setting) -> str:
        return setting.world.connect

    return [
        flowctl.on_spark(spec, load=flowctl.apply(spec), check=check),
        flowctl.on_connect(spec, load=flowctl.apply(spec, connect), check=check),
        flowctl.on_sail(spec, load=flowctl.apply(spec, lambda _: "sail"), check=check),
    ]


def _dlt_task(**more: Any) -> Callable[[Setting], Mapping[str, Any]]:
    def task(setting: Setting) -> Mapping[str, Any]:
        return {"source": setting.world.postgres, "schema": "public", "tables": ["orders"], **more}

    return task


def _by_hand(task: str, how: str, check: Callable[[Setting, Path], Verdict], **more: Any) -> Competitor:
    def options(setting: Setting) -> Mapping[str, Any]:
        table = {"table": "orders", "name": "orders", "key": _KEY, "where": _CHANGED}
        return {**pyspark.jdbc(setting.world.postgres), **table, **more}

    load = pyspark.script("create", options)
    return Competitor("plain PySpark", f"{pyspark.JDBC}; {how}", pyspark.script(task, options), check, load)


_MERGE = _table(mode="merge")
_UPSERT = {"disposition": "merge", "strategy": "upsert"}

MERGE = Case(
    name="merge",
    title="Merge of 1 %",
    says="Half of the changed rows are updates, half are new; both are found by a cursor with an index. The table was"
    " loaded by the same competitor before, unmeasured.",
    prepare=_prepare("changed"),
    change=lambda world: sources.update_orders(world, 200, also=_INSERTS),
    needs=("postgres", "connect"),
    competitors=(
        *_ours(_MERGE, equals(flowctl.in_lake("orders"))),
        Competitor(
            "dlt, pyarrow",
            f"{dlt.SQL}, backend pyarrow, `incremental`; merge by `upsert`, {dlt.DELTA}",
            dlt.load(_dlt_task(key=_KEY, cursor="updated_at", write=_UPSERT)),
            equals(dlt.in_lake("orders")),
            dlt.load(_dlt_task(key=_KEY, cursor="updated_at", write=_UPSERT)),
            missing=dlt.missing,
        ),
        _by_hand("merge", "MERGE of the rows above a position it is told", equals(pyspark.in_lake("orders"))),
    ),
    targets=(Within("flowctl", 8), Within("flowctl on Connect", 2), Within("flowctl on Sail", 2)),
)


def _versions(place: Callable[[Setting, str], Relation], current: str) -> Callable[[Setting, Path], Verdict]:
    """The current versions equal the source's rows; there are as many ended versions as changed rows."""

    def check(setting: Setting, output: Path) -> Verdict:
        assert setting.expected is not None
        verdict = equals(lambda setting: (place(setting, current),))(setting, output)
        if not verdict.right:
            return verdict
        try:
            ended = read((place(setting, f"NOT ({current})"),), types={_KEY: "BIGINT"}).rows
        except Unreadable as error:
            return Verdict(False, str(error))
        if ended != setting.prepared.rows:
            return Verdict(False, f"{ended:,} ended versions where {setting.prepared.rows:,} are right", verdict.types)
        return verdict

    return check


def _in_lake(setting: Setting, where: str) -> Relation:
    return flowctl.in_lake("orders", where)(setting)[0]


def _in_database(schema: str) -> Callable[[Setting, str], Relation]:
    return lambda setting, where: postgres(setting.database, f"{schema}.orders", where)


_SCD2 = _table(mode="scd2", scd2={"valid_from": "updated_at"})
_HISTORY = {"disposition": "merge", "strategy": "scd2"}


def _scd2_to_postgres(setting: Setting) -> Mapping[str, Any]:
    spec = _SCD2(setting)
    orders = {**spec["tables"]["orders"], "to": "dst:public.orders"}
    connections = {"pg": spec["connections"]["pg"], "dst": flowctl.postgres(setting.database)}
    return {"connections": connections, "tables": {"orders": orders}}


def _dlt_scd2(setting: Setting) -> Mapping[str, Any]:
    history = {"merge_key": _KEY, "cursor": "updated_at", "write": _HISTORY}
    return {**_dlt_task(**history)(setting), "target": setting.database}


SCD2 = Case(
    name="scd2",
    longest=300.0,
    title="History (scd2) with 1 % changed",
    says="All changed rows are updates: each ends a version and begins one. The first versions were loaded by the same"
    " competitor before, unmeasured.",
    prepare=_prepare("changed"),
    change=lambda world: sources.update_orders(world, 100),
    needs=("postgres", "connect"),
    competitors=(
        *_ours(_SCD2, _versions(_in_lake, "is_current")),
        Competitor(
            "flowctl to PostgreSQL",
            "the same table with a PostgreSQL database as target, beside dlt's",
            flowctl.apply(_scd2_to_postgres),
            _versions(_in_database("public"), "is_current"),
            flowctl.apply(_scd2_to_postgres),
            ours=True,
            database=True,
        ),
        Competitor(
            "dlt to PostgreSQL",
            f"{dlt.SQL}, backend sqlalchemy, `incremental`, strategy `scd2` with a merge key; postgres destination",
            dlt.load(lambda setting: {**_dlt_scd2(setting), "backend": "sqlalchemy"}),
            _versions(_in_database("bench"), "_dlt_valid_to IS NULL"),
            dlt.load(lambda setting: {**_dlt_scd2(setting), "backend": "sqlalchemy"}),
            missing=dlt.missing,
            database=True,
        ),
        _by_hand(
            "scd2",
            "one MERGE with each changed row twice; late rows are not put in order, no observations are kept",
            _versions(_in_lake, "valid_to IS NULL"),
            versions=True,
        ),
    ),
    notes=(
        "dlt's scd2 needs an SQL destination: on Delta it offers `upsert` and `insert-only`.",
        "flowctl keeps every observation beside the versions, so that late rows find their place; the others do not.",
    ),
)

_DELETES = _table(mode="merge", deletes={"detect": "missing_keys", "action": "hard"})

DELETES = Case(
    name="deletes",
    title="Deletes by missing keys, 1 %",
    says="Rows are gone from the source and nothing else has changed: all keys of both sides are compared.",
    prepare=_prepare("deleted"),
    change=lambda world: sources.delete_orders(world, 100),
    needs=("postgres", "connect"),
    competitors=(
        *_ours(_DELETES, equals(flowctl.in_lake("orders"))),
        Competitor(
            "dlt, connectorx, replaced",
            f"{dlt.SQL}, backend connectorx, `replace`: the whole table anew; {dlt.DELTA}",
            dlt.load(_dlt_task(backend="connectorx")),
            equals(dlt.in_lake("orders")),
            dlt.load(_dlt_task(backend="connectorx")),
            missing=dlt.missing,
        ),
        _by_hand("deletes", "MERGE … WHEN NOT MATCHED BY SOURCE with all keys", equals(pyspark.in_lake("orders"))),
    ),
    notes=("dlt does not find missing keys: `replace` is how it gets there, so it has a case of its own here.",),
)
