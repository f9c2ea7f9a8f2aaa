"""Changes that a real Debezium captures from PostgreSQL: the merged table equals the source, by value."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest

from tests.e2e.flows import Flow, postgres_rows
from tests.e2e.streams.test_follow import wait_for
from tests.services import connect, kafka, postgres

TABLE = """
CREATE TABLE public.orders (
    id bigint PRIMARY KEY, small smallint, n int, price numeric(12,2), free numeric, f real, d double precision,
    ok boolean, name text, code varchar(9), day date, at timestamp, at_zone timestamptz, at_ms timestamp(3), t time,
    raw bytea, u uuid, j jsonb, tags text[]
);
INSERT INTO public.orders
SELECT i, i, i, i / 100.0, i / 8.0, i / 4.0, i / 3.0, i % 2 = 0, 'n' || i, 'c', '2026-01-01'::date + i::int,
    '2026-01-01 10:00:00.123456'::timestamp + i * interval '1 s',
    '2026-01-01 10:00:00.123456+02'::timestamptz + i * interval '1 s',
    '2026-01-01 10:00:00.123'::timestamp, '10:11:12.000013', decode(lpad(to_hex(i), 4, '0'), 'hex'),
    ('00000000-0000-0000-0000-' || lpad(i::text, 12, '0'))::uuid, jsonb_build_object('i', i), ARRAY['a', i::text]
FROM generate_series(1, 50) i;
INSERT INTO public.orders (id) VALUES (-1), (9223372036854775807);
"""
CHANGES = """
UPDATE public.orders SET name = 'new ü', price = NULL WHERE id % 3 = 0;
UPDATE public.orders SET id = id + 1000 WHERE id BETWEEN 10 AND 20;
DELETE FROM public.orders WHERE id % 7 = 0;
INSERT INTO public.orders (id, name) VALUES (7, 'again');
DELETE FROM public.orders WHERE id = 8;
INSERT INTO public.orders (id, day, at) VALUES (8, '0001-01-01', '9999-12-31 23:59:59.999999');
"""
#: Longer than what PostgreSQL keeps within the row.
LONG = "UPDATE public.orders SET name = (SELECT string_agg(md5(i::text), '') FROM generate_series(1, 500) i)"
UNCHANGED = "UPDATE public.orders SET n = 1 WHERE id = 3"
DECLARED = """{id: bigint, small: smallint, n: int, price: "decimal(12,2)", d: double, ok: boolean, name: string,
    code: string, at_zone: timestamp, tags: array<string>}"""
#: The format, and what is compared.
FORMATS = {
    "avro": (
        "{type: avro, envelope: debezium}",
        "id, small, n, price, f, d, ok, name, code, day, at, at_zone, at_ms, raw, tags",
    ),
    "json": (
        f"{{type: json, envelope: debezium, schema: {DECLARED}}}",
        "id, small, n, price, d, ok, name, code, at_zone, tags",
    ),
}


def settings(url: str, **more: str) -> dict[str, str]:
    parts = urlsplit(url)
    return {
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": str(parts.hostname),
        "database.port": str(parts.port),
        "database.user": str(parts.username),
        "database.password": str(parts.password),
        "database.dbname": parts.path[1:],
        "topic.prefix": "shop",
        "table.include.list": "public.orders",
        "plugin.name": "pgoutput",
        "topic.creation.default.replication.factor": "1",
        "topic.creation.default.partitions": "2",
        **more,
    }


def execute(url: str, script: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(script)


@pytest.mark.full
@pytest.mark.parametrize("kind", [*FORMATS])
def test_the_table_is_what_the_source_is(
    kind: str, tmp_path: Path, postgres_database: str, schema_registry: str
) -> None:
    flow = Flow(tmp_path, {"PG_PASSWORD": "etl-secret"})
    format, columns = FORMATS[kind]
    secret = postgres_database.replace("etl-secret", "${secret:env:PG_PASSWORD}")
    with ExitStack() as stack:
        source = stack.enter_context(stack.enter_context(postgres.cluster()).started({"wal_level": "logical"}))
        broker = stack.enter_context(stack.enter_context(kafka.broker()).started())
        flow.write(f"""version: 1
flow: bus
state: state
spark: {{url: sail}}
connections:
  bus: {{type: kafka, brokers: "{broker}", registry: {{url: "{schema_registry}"}}}}
  out: {{type: postgres, url: "{secret}"}}
defaults: {{mode: merge, key: [id], format: {format}}}
tables:
  orders: {{from: "bus:shop.public.orders", to: "out:public.orders"}}
  kept: {{from: "bus:shop.public.orders", to: "out:public.kept", dead_letters: {{}}, guard: {{max_deleted: 100%}}}}
  ordered:
    from: "bus:shop.public.orders"
    to: "out:public.ordered"
    format: {format[:-1]}, source_order: true}}
    deletes: {{action: soft}}
""")
        execute(source, TABLE)
        more = connect.avro(schema_registry) if kind == "avro" else {"decimal.handling.mode": "string"}
        stack.enter_context(connect.connector(broker, {**settings(source), **more}))

        def must_be_equal(table: str) -> None:
            query = f"SELECT {columns} FROM public."
            assert postgres_rows(postgres_database, query + table) == postgres_rows(source, f"{query}orders")

        def must_arrive(table: str) -> None:
            """What was changed in the source until now."""
            execute(source, "UPDATE public.orders SET small = small + 1, name = 'short' WHERE id = 1")
            [(last,)] = postgres_rows(source, "SELECT small FROM public.orders WHERE id = 1")

            def has_arrived() -> bool:
                flow.apply("--select", table)
                return postgres_rows(postgres_database, f"SELECT small FROM public.{table} WHERE id = 1") == [(last,)]

            wait_for(has_arrived, 120)
            must_be_equal(table)

        kafka.wait_for_messages(broker, "shop.public.orders", 52)
        flow.apply("--select", "orders")
        must_be_equal("orders")
        execute(source, CHANGES)
        must_arrive("orders")

        flow.apply("--select", "ordered")
        alive = f"SELECT {columns} FROM public.ordered WHERE _deleted_at IS NULL"
        assert postgres_rows(postgres_database, alive) == postgres_rows(source, f"SELECT {columns} FROM public.orders")
        everything = "SELECT * FROM public.ordered"
        before = postgres_rows(postgres_database, everything)
        start = '{"kind": "offsets", "offsets": {"0": 0, "1": 0}}'
        flow.run("state", "set", "flow.yaml", "ordered", "--position", start, "--yes", expect=0)
        flow.apply("--select", "ordered")
        assert postgres_rows(postgres_database, everything) == before

        # A long text that an update leaves as it was is not in its message.
        execute(source, LONG)
        execute(source, UNCHANGED)
        wait_for(lambda: flow.apply("--select", "orders", expect=None).code == 4)
        refused = flow.apply("--select", "orders", expect=4)
        assert "Debezium does not tell the value of name" in refused.words
        execute(source, "ALTER TABLE public.orders REPLICA IDENTITY FULL")
        execute(source, UNCHANGED)
        must_arrive("kept")
        errors = 'SELECT "_error", count(*) FROM public.kept__dead_letters GROUP BY 1'
        assert [error for error, _ in postgres_rows(postgres_database, errors)] == ["unavailable"]


@pytest.mark.full
@pytest.mark.parametrize("kind", [*FORMATS])
def test_a_truncated_source_table(kind: str, tmp_path: Path, postgres_database: str, schema_registry: str) -> None:
    """In a topic with two partitions, by the order in the source's log."""
    flow = Flow(tmp_path, {"PG_PASSWORD": "etl-secret"})
    format = {"avro": "type: avro", "json": "type: json, schema: {id: bigint, name: string}"}[kind]
    secret = postgres_database.replace("etl-secret", "${secret:env:PG_PASSWORD}")
    with ExitStack() as stack:
        source = stack.enter_context(stack.enter_context(postgres.cluster()).started({"wal_level": "logical"}))
        broker = stack.enter_context(stack.enter_context(kafka.broker()).started())
        read = f"from: 'bus:shop.public.orders', format: {{{format}, envelope: debezium, source_order: true}}"
        flow.write(f"""version: 1
flow: bus
state: state
spark: {{url: sail}}
connections:
  bus: {{type: kafka, brokers: "{broker}", registry: {{url: "{schema_registry}"}}}}
  out: {{type: postgres, url: "{secret}"}}
defaults: {{key: [id]}}
tables:
  rows: {{{read}, to: "out:public.rows", mode: merge, deletes: {{action: soft}}}}
  versions: {{{read}, to: "out:public.versions", mode: scd2, scd2: {{valid_from: commit}}}}
""")
        execute(source, "CREATE TABLE public.orders (id bigint PRIMARY KEY, name text)")
        execute(source, "INSERT INTO public.orders SELECT i, 'old' FROM generate_series(1, 20) i")
        more = connect.avro(schema_registry) if kind == "avro" else {}
        connector = {**settings(source), **more, "skipped.operations": "none"}
        stack.enter_context(connect.connector(broker, connector))
        kafka.wait_for_messages(broker, "shop.public.orders", 20)
        flow.apply()
        execute(source, "UPDATE public.orders SET name = 'never seen' WHERE id < 5")
        execute(source, "INSERT INTO public.orders VALUES (30, 'never seen')")
        execute(source, "BEGIN; INSERT INTO public.orders VALUES (31, 'x'); TRUNCATE public.orders; COMMIT")
        execute(source, "INSERT INTO public.orders SELECT i, 'new' FROM generate_series(3, 9) i")
        kafka.wait_for_messages(broker, "shop.public.orders", 20 + 4 + 1 + 2 + 7)
        flow.apply()
        wanted = postgres_rows(source, "SELECT id, name FROM public.orders")
        assert len(wanted) == 7
        for table, live in (("rows", "_deleted_at IS NULL"), ("versions", "is_current")):
            found = postgres_rows(postgres_database, f"SELECT id, name FROM public.{table} WHERE {live}")
            assert found == wanted, table
        assert [one.key for one in kafka.received(broker, "shop.public.orders")].count(None) == 1, "the truncate"
