"""PostgreSQL tables that are not there or may not be written: what is said of them before anything is tried."""

from __future__ import annotations

import re
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any, get_args

import psycopg
import pytest

from flowctl.connectors.base import Connector
from flowctl.connectors.postgres.client import client
from flowctl.connectors.postgres.commits import why_unwritable
from flowctl.connectors.postgres.session import POSTGRES
from flowctl.connectors.sql import ddl
from flowctl.errors import StoppedByPolicy, TableError
from flowctl.model import types
from flowctl.model.mode import Mode
from flowctl.model.schema_change import SchemaChange
from flowctl.model.table_info import ObjectName, same_identity
from tests.connectors.reading import describe, opened, spark_rows, table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = ObjectName(("public", "t"))
PARTITIONED = (
    "CREATE TABLE t (id int PRIMARY KEY) PARTITION BY LIST (id); CREATE TABLE t_1 PARTITION OF t FOR VALUES IN (1)"
)


@pytest.mark.parametrize(
    ("wanted", "hint"),
    [
        (("sales", "ordres"), "Did you mean `sales.Orders`?"),
        (("sale", "Orders"), "Did you mean `sales.Orders`?"),
        (("custmers",), "Did you mean `customers`?"),
        (("sales", "nothing_like_it"), "Correct `from`, or let the connection's user see it"),
    ],
)
def test_a_table_that_is_not_there_is_named_with_its_place_and_what_comes_near(
    database: psycopg.Connection[Any], postgres: Connector, wanted: tuple[str, ...], hint: str
) -> None:
    database.execute('CREATE SCHEMA sales; CREATE TABLE sales."Orders" (id int); CREATE TABLE customers (id int)')
    assert postgres.source is not None
    missing = postgres.source.why_missing(table(*wanted))
    assert missing.hint == hint
    assert database.info.dbname in missing.reason and str(database.info.port) in missing.reason


def test_a_target_that_this_user_may_not_write_says_which_right_is_missing(
    database: psycopg.Connection[Any], postgres: Connector
) -> None:
    database.execute(
        "DROP ROLE IF EXISTS reader; CREATE ROLE reader; CREATE SCHEMA closed; CREATE SCHEMA open;"
        "GRANT USAGE, CREATE ON SCHEMA open TO reader; CREATE TABLE open.ours (id int)"
    )
    refused = {}
    with psycopg.connect(database.info.dsn, password=database.info.password, autocommit=True) as reader:
        reader.execute("SET ROLE reader")
        for parts in (("closed", "t"), ("nowhere", "t"), ("open", "ours"), ("open", "t")):
            refused[parts] = why_unwritable(reader, ObjectName(parts), "append")
    hints = {parts: error.hint if error else None for parts, error in refused.items()}
    assert hints == {
        ("closed", "t"): "GRANT USAGE, CREATE ON SCHEMA closed TO reader",
        ("nowhere", "t"): "Create the schema nowhere, or: GRANT CREATE ON DATABASE … TO reader",
        ("open", "ours"): "GRANT SELECT, INSERT, UPDATE, DELETE ON open.ours TO reader",
        ("open", "t"): None,
    }
    database.execute("DROP SCHEMA open, closed CASCADE; DROP ROLE reader")
    assert postgres.target is not None and postgres.target.why_unwritable(ObjectName(("public", "t")), "merge") is None


def test_rights_are_asked_where_the_table_is_and_where_tables_are_created(database: psycopg.Connection[Any]) -> None:
    """They may be two schemas of the search path. A merge updates rows, too."""
    database.execute(
        "DROP ROLE IF EXISTS writer; CREATE ROLE writer; CREATE SCHEMA a; CREATE SCHEMA b;"
        "GRANT USAGE ON SCHEMA a, b TO writer; CREATE TABLE b.t (id int); GRANT SELECT, INSERT, DELETE ON b.t TO writer"
    )
    t, hints = ObjectName(("t",)), []
    try:
        for granted in ("CREATE ON SCHEMA b", "CREATE ON SCHEMA a", "UPDATE ON b.t"):
            database.execute(f"GRANT {granted} TO writer".encode())
            with psycopg.connect(database.info.dsn, password=database.info.password, autocommit=True) as writer:
                writer.execute("SET ROLE writer; SET search_path = a, b")
                found = [why_unwritable(writer, t, mode) for mode in get_args(Mode)]
            hints.append({error.hint if error else None for error in found})
    finally:
        database.execute("DROP SCHEMA a, b CASCADE; DROP ROLE writer")
    rows = "GRANT SELECT, INSERT, UPDATE, DELETE ON t TO writer"
    assert hints == [{"GRANT USAGE, CREATE ON SCHEMA a TO writer"}, {None, rows}, {None}]


@pytest.mark.parametrize("path", ["''", "nowhere"])
def test_a_bare_name_is_refused_where_the_search_path_leads_to_no_schema(
    database: psycopg.Connection[Any], postgres_database: str, path: str
) -> None:
    """When the plan describes the target: otherwise the plan would be clean, and the run would fail."""
    database.execute(f'ALTER DATABASE "{database.info.dbname}" SET search_path = {path}')
    bare, named = ObjectName(("orders",)), ObjectName(("public", "orders"))
    with opened("postgres", url=postgres_database) as connector:
        assert connector.target is not None
        assert connector.target.describe([named]) == {named: None}
        with pytest.raises(TableError, match="orders has no schema: the search path of etl leads to none") as refused:
            connector.target.describe([bare, named])
    assert "public.orders" in refused.value.hint


def test_a_user_who_may_not_ask_for_the_systems_identifier_sees_the_same_table(
    database: psycopg.Connection[Any], postgres_database: str, postgres: Connector
) -> None:
    database.execute("CREATE TABLE orders (id int); REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
    database.execute("CREATE ROLE teller LOGIN PASSWORD 'teller'; GRANT SELECT ON orders TO teller")
    orders = table("public", "orders")
    assert postgres.source is not None
    try:
        with opened("postgres", url=postgres_database, user="teller", password="teller") as connector:
            assert connector.source is not None
            ours, theirs = (one.describe([orders])[orders] for one in (postgres.source, connector.source))
    finally:
        database.execute("DROP OWNED BY teller; DROP ROLE teller")
    assert ours is not None and theirs is not None and ours.identity != theirs.identity
    assert "unknown@" in theirs.system
    assert same_identity(ours.identity, theirs.identity) and same_identity(theirs.system, ours.system)


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        ("CREATE TABLE t (id int)", None),
        (PARTITIONED, None),
        ("CREATE VIEW t AS SELECT 1 AS id", "is a view"),
        ("CREATE MATERIALIZED VIEW t AS SELECT 1 AS id", "is a materialized view"),
        ("CREATE FOREIGN TABLE t (id int) SERVER other", "is a foreign table"),
        (
            "CREATE TABLE t (id int) PARTITION BY LIST (id);"
            "CREATE FOREIGN TABLE t_1 PARTITION OF t FOR VALUES IN (1) SERVER other",
            r"has rows on another server \(public.t_1\)",
        ),
    ],
)
@pytest.mark.parametrize("mode", ["append", "merge"])
def test_what_does_not_keep_rows_with_their_number_is_no_target(
    database: psycopg.Connection[Any], postgres: Connector, made: str, reason: str | None, mode: Mode
) -> None:
    if "FOREIGN" in made:
        database.execute("CREATE EXTENSION postgres_fdw; CREATE SERVER other FOREIGN DATA WRAPPER postgres_fdw")
    database.execute(made)
    refused = _refused(postgres, mode)
    assert refused is None if reason is None else re.search(reason, str(refused))


def test_rows_of_children_are_not_changed(database: psycopg.Connection[Any], postgres: Connector) -> None:
    database.execute("CREATE TABLE t (id int); CREATE TABLE child () INHERITS (t); INSERT INTO child VALUES (1)")
    assert _refused(postgres, "append") is None
    stopped = [_refused(postgres, mode) for mode in ("merge", "scd2")]
    stopped += [_refused(postgres, mode, replaces=True) for mode in ("truncate", "append")]
    for one in stopped:
        assert one is not None and "has children by inheritance (public.child)" in one.message
        assert "ALTER TABLE public.child NO INHERIT" in one.hint
    database.execute("CREATE SCHEMA _timescaledb_internal; ALTER TABLE child SET SCHEMA _timescaledb_internal")
    assert _refused(postgres, "merge") is None
    database.execute("ALTER TABLE _timescaledb_internal.child NO INHERIT t")
    assert _refused(postgres, "merge") is None


def test_columns_that_the_database_fills_are_described(database: psycopg.Connection[Any], postgres: Connector) -> None:
    database.execute(
        "CREATE DOMAIN here AS text DEFAULT 'here';"
        "CREATE TABLE t (id int PRIMARY KEY, always int GENERATED ALWAYS AS IDENTITY, mine int GENERATED BY DEFAULT AS"
        " IDENTITY, twice int GENERATED ALWAYS AS (id * 2) STORED, number serial, at timestamptz DEFAULT now(),"
        ' nothing int DEFAULT NULL, origin here, "Plain" text NOT NULL)'
    )
    assert postgres.target is not None
    info = describe(postgres.target, T)
    assert postgres.target.filled_columns(info) == {
        "always": "numbered", "mine": "default", "twice": "computed", "number": "default", "at": "default",
        "origin": "default",
    }  # fmt: skip


def _refused(postgres: Connector, mode: Mode, *, replaces: bool = False) -> StoppedByPolicy | None:
    assert postgres.target is not None
    info = describe(postgres.target, T)
    return postgres.target.refuse_write(info, mode, replaces=replaces)


def test_rows_that_a_policy_may_hide_are_not_compared(
    database: psycopg.Connection[Any], postgres_database: str, postgres: Connector
) -> None:
    database.execute(
        "CREATE TABLE t (id int, region text); ALTER TABLE t ENABLE ROW LEVEL SECURITY;"
        "CREATE POLICY seen ON t USING (region = 'us'); CREATE ROLE loader LOGIN PASSWORD 'loader';"
        "GRANT ALL ON t TO loader"
    )
    try:
        with opened("postgres", url=postgres_database, user="loader", password="loader") as connector:
            assert "row-level security" in str(_refused(connector, "merge"))
            assert "row-level security" in str(_refused(connector, "append", replaces=True))
            assert _refused(connector, "append") is None  # reads nothing
            database.execute("ALTER ROLE loader BYPASSRLS")
            assert _refused(connector, "merge") is None
    finally:
        database.execute("DROP OWNED BY loader; DROP ROLE loader")
    assert _refused(postgres, "merge") is None


@pytest.mark.parametrize(
    ("made", "referring"),
    [
        ("CREATE TABLE t (id int PRIMARY KEY)", "ON DELETE CASCADE"),
        ("CREATE TABLE t (id int PRIMARY KEY)", "ON DELETE SET NULL"),
        ("CREATE TABLE t (id int PRIMARY KEY)", "ON DELETE SET DEFAULT"),
        (PARTITIONED, "ON DELETE CASCADE"),
        (
            "CREATE TABLE above (id int PRIMARY KEY) PARTITION BY LIST (id);"
            "CREATE TABLE t PARTITION OF above FOR VALUES IN (1)",
            "ON DELETE CASCADE",
        ),
    ],
)
def test_a_table_whose_deletions_reach_another_is_not_replaced(
    database: psycopg.Connection[Any], postgres: Connector, made: str, referring: str
) -> None:
    database.execute(made)
    parent = "above" if "above" in made else "t"
    database.execute(f"CREATE TABLE child (parent int DEFAULT 1 REFERENCES {parent} {referring})")
    for mode, replaces in (("truncate", True), ("merge", True), ("append", True), ("scd2", False)):
        assert "foreign key deletes or changes rows of public.child" in str(_refused(postgres, mode, replaces=replaces))
    assert _refused(postgres, "merge") is None  # deletes what the source has deleted
    assert _refused(postgres, "append") is None


def test_a_table_that_others_refer_to_is_replaced_where_that_touches_no_row_of_theirs(
    database: psycopg.Connection[Any], postgres: Connector
) -> None:
    database.execute(
        "CREATE TABLE t (id int PRIMARY KEY, above int REFERENCES t ON DELETE CASCADE);"
        "CREATE TABLE child (parent int REFERENCES t ON DELETE NO ACTION DEFERRABLE INITIALLY DEFERRED);"
        "CREATE TABLE other (id int PRIMARY KEY);"
        "ALTER TABLE t ADD FOREIGN KEY (above) REFERENCES other ON DELETE CASCADE"
    )
    assert _refused(postgres, "truncate", replaces=True) is None


@pytest.mark.parametrize(
    ("made", "unlogged"),
    [
        ("CREATE UNLOGGED TABLE t (id int)", "public.t"),
        (PARTITIONED.replace("TABLE t_1", "UNLOGGED TABLE t_1"), "public.t_1"),
        ('CREATE TABLE t (id int); CREATE UNLOGGED TABLE "T_1" () INHERITS (t)', 'public."T_1"'),
    ],
)
def test_a_table_that_a_crash_would_empty_is_no_target(
    database: psycopg.Connection[Any], postgres: Connector, made: str, unlogged: str
) -> None:
    database.execute(made.encode())
    for mode in get_args(Mode):
        refused = _refused(postgres, mode)
        assert refused is not None
        assert refused.message.startswith(f"public.t has unlogged rows ({unlogged}): a crash of the server would")
        assert refused.hint == f"ALTER TABLE {unlogged} SET LOGGED"
    database.execute(f"ALTER TABLE {unlogged} SET LOGGED".encode())
    assert _refused(postgres, "append") is None


@pytest.mark.parametrize(
    ("rule", "refused"),
    [
        ("INSERT TO t DO INSTEAD INSERT INTO other VALUES (new.id)", {"append", "truncate", "merge", "scd2"}),
        ("UPDATE TO t DO INSTEAD UPDATE other SET id = new.id", {"merge", "scd2"}),
        ("DELETE TO t DO INSTEAD NOTHING", {"truncate", "merge", "scd2"}),
        ("INSERT TO t WHERE new.id > 1 DO INSTEAD INSERT INTO other VALUES (new.id)", set()),  # see the rows' number
        ("INSERT TO t DO ALSO INSERT INTO other VALUES (new.id)", set()),
    ],
)
def test_a_table_with_a_rule_that_writes_elsewhere_is_no_target(
    database: psycopg.Connection[Any], postgres: Connector, rule: str, refused: set[Mode]
) -> None:
    database.execute("CREATE TABLE t (id int); CREATE TABLE other (id int)")
    database.execute(f'CREATE RULE "Away" AS ON {rule}'.encode())

    def found() -> dict[Mode, StoppedByPolicy]:
        errors = {mode: _refused(postgres, mode, replaces=mode == "truncate") for mode in get_args(Mode)}
        return {mode: error for mode, error in errors.items() if error is not None}

    stopped = found()
    assert set(stopped) == refused
    for error in stopped.values():
        assert error.message.startswith('public.t has the rule "Away", which executes something else instead')
        assert error.hint.startswith('Run `DROP RULE "Away" ON "public"."t"`')
    database.execute('ALTER TABLE t DISABLE RULE "Away"')
    assert not found()


TRIGGERED = "CREATE FUNCTION noted() RETURNS trigger LANGUAGE plpgsql AS 'begin return new; end';"
REFERRED_TO = "ALTER TABLE t ADD UNIQUE (n); CREATE TABLE y (a int REFERENCES t (n))"


@pytest.mark.parametrize(
    ("made", "stopped", "name"),
    [
        ("CREATE VIEW v AS SELECT n FROM t", "widen retype drop", "view v"),
        ("CREATE MATERIALIZED VIEW v AS SELECT n FROM t", "widen retype drop", "materialized view v"),
        ("CREATE VIEW v AS SELECT count(*), max(id) FROM t", "", ""),
        ("CREATE RULE r AS ON UPDATE TO t WHERE new.n > 5 DO NOTHING", "widen retype drop", "rule r on table t"),
        ("ALTER TABLE t ADD dbl int GENERATED ALWAYS AS (n * 2) STORED", "widen retype drop", "column dbl of table t"),
        ("CREATE POLICY p ON t USING (n > 1)", "widen retype drop", "policy p on table t"),
        (
            f"{TRIGGERED} CREATE TRIGGER g BEFORE UPDATE ON t FOR EACH ROW WHEN (new.n > 1) EXECUTE FUNCTION noted()",
            "widen retype drop",
            "trigger g on table t",
        ),
        (
            f"{TRIGGERED} CREATE TRIGGER g BEFORE UPDATE OF n ON t FOR EACH ROW EXECUTE FUNCTION noted()",
            "widen retype drop",
            "trigger g on table t",
        ),
        (f"{TRIGGERED} CREATE TRIGGER g BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION noted()", "", ""),
        (
            "CREATE FUNCTION f() RETURNS int LANGUAGE sql BEGIN ATOMIC SELECT max(n) FROM t; END",
            "widen retype drop",
            "function f()",
        ),
        (REFERRED_TO, "retype drop", "constraint y_a_fkey on table y"),
        ("ALTER TABLE t ADD PRIMARY KEY (n)", "retype relax", "the primary key"),
        ("CREATE INDEX i ON t (n); CREATE STATISTICS s ON n, id FROM t; ALTER TABLE t ALTER n SET DEFAULT 5", "", ""),
        ("ALTER TABLE t ADD CHECK (n > id)", "", ""),
        (
            "DROP TABLE t; CREATE TABLE t (id int, n int) PARTITION BY RANGE (id); CREATE TABLE y (n int, id int);"
            "ALTER TABLE t ATTACH PARTITION y FOR VALUES FROM (1) TO (10); CREATE VIEW v AS SELECT n FROM y",
            "widen retype drop",
            "view v",
        ),
        ("DROP TABLE t; CREATE TABLE t (id int, n int) PARTITION BY RANGE (n)", "widen retype drop", "partition key"),
        ("DROP TABLE t; CREATE TABLE t (id int, n int) PARTITION BY RANGE ((n + 1))", "widen retype drop", "key"),
    ],
)
def test_a_column_that_something_uses_changes_no_type_and_is_not_dropped(
    database: psycopg.Connection[Any], postgres: Connector, made: str, stopped: str, name: str
) -> None:
    """The plan stops exactly where the server would, and names what uses the column."""
    database.execute("CREATE TABLE t (id int, n int)")
    database.execute(made)
    assert postgres.target is not None
    info = describe(postgres.target, T)
    asked = {
        "widen": SchemaChange("n", "wider_type", types.INT32, types.INT64, "widen", ""),
        "retype": SchemaChange("n", "other_type", types.INT32, types.DATE, "retype", ""),
        "drop": SchemaChange("n", "dropped_column", types.INT32, None, "drop", ""),
        "relax": SchemaChange("n", "nullable", types.INT32, types.INT32, "relax", ""),
    }
    if "CHECK" in made:  # it needs a type to compare with
        asked["retype"] = replace(asked["retype"], new=types.INT64)
    changes = {action: postgres.target.alter_statements(info, [change])[0] for action, change in asked.items()}
    refused = {action for action, change in changes.items() if change.action == "fail"}
    assert refused == set(stopped.split())
    for action, change in changes.items():
        if action in refused:
            assert name in change.note and change.next_step and not change.statement
        by_hand = ddl.change_statement(POSTGRES, T, asked[action])
        with pytest.raises(psycopg.Error) if action in refused else nullcontext(), database.transaction() as undone:
            database.execute(by_hand)
            raise psycopg.Rollback(undone)


def test_the_next_step_is_named_that_the_manual_has(database: psycopg.Connection[Any], postgres_database: str) -> None:
    database.execute("CREATE MATERIALIZED VIEW m AS SELECT 1 WITH NO DATA; CREATE VIEW v AS SELECT * FROM m")
    database.execute("CREATE TABLE p (id int) PARTITION BY LIST (id)")
    statements = {"SELECT * FROM v": "Run REFRESH MATERIALIZED VIEW", "INSERT INTO p VALUES (1)": "Add a partition"}
    for statement, hint in statements.items():
        with pytest.raises(TableError) as met, client({"url": postgres_database}).connect() as connection:
            connection.execute(statement.encode())
        assert met.value.hint.startswith(hint)


@pytest.mark.engine
def test_a_materialized_view_without_rows_is_named_by_the_engine_too(
    database: psycopg.Connection[Any], postgres: Connector, spark: SparkSession
) -> None:
    database.execute("CREATE MATERIALIZED VIEW m AS SELECT 1 AS i WITH NO DATA")
    with pytest.raises(TableError, match=r'materialized view "m" has not been populated') as met:
        spark_rows(spark, postgres.source, table("m"))
    assert met.value.hint.startswith("Run REFRESH MATERIALIZED VIEW")


def test_a_column_that_came_into_use_after_the_plan_is_named_with_what_uses_it(
    database: psycopg.Connection[Any], postgres_database: str
) -> None:
    database.execute("CREATE TABLE t (id int, n int); CREATE VIEW v AS SELECT n FROM t")
    reached = client({"url": postgres_database})
    for statement in ("ALTER TABLE t ALTER n TYPE bigint", "ALTER TABLE t DROP COLUMN n"):
        with pytest.raises(TableError, match="view v depends on column") as error, reached.connect() as connection:
            connection.execute(statement)
        assert error.value.hint == "Drop what uses the column, run, and recreate it"
