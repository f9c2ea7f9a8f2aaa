"""PostgreSQL → PostgreSQL: values and types are those of the source, as PostgreSQL's own text of both sides, whether
rows are passed on undecoded or not."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

import psycopg
import pytest
from psycopg import sql

from flowctl.crashpoints import POINTS, Point
from tests.e2e.flows import Flow, Row, end_of_stopped, wait_until_stopped
from tests.services import postgres

#: Type in the source, its values as SQL, and the target's type if that is another.
TYPES: list[tuple[str, list[str], str]] = [
    ("numeric", ["'NaN'", "'-Infinity'", "1.50", "123456789012345678901234567890123456789012345.678"], ""),
    ("numeric(60,2)", ["1e50"], ""),
    ("numeric(5,2)", ["'NaN'", "-0.01"], ""),
    ("real", ["'NaN'", "'-Infinity'", "1e-45"], ""),
    ("double precision", ["'-0'", "0.1"], ""),
    ("date", ["'infinity'", "'-infinity'", "'4713-01-01 BC'", "'5874897-12-31'"], ""),
    ("timestamp(3)", ["'infinity'", "'2026-03-29 02:30:00.123'"], "timestamp(3) without time zone"),
    ("timestamptz", ["'-infinity'", "'0044-03-15 12:00:00+00 BC'"], "timestamp with time zone"),
    ("time", ["'24:00'"], "time without time zone"),
    ("timetz", ["'12:00:00.5+05:30'"], "time with time zone"),
    ("interval", ["'1 year -3 days 04:05:06.789'", "'24 hours'", "'1 day'"], ""),
    ("interval year to month", ["'1-2'"], ""),
    ("char(5)", ["'ab'", "''"], "character(5)"),
    ("bpchar", ["'ab  '"], ""),
    ("varchar(4)", ["'ab  '", "'🦆'"], "character varying(4)"),
    ("text", ["''", "E'\\\\N'", "E'a\\t\"\\n\\r\\\\.'"], ""),
    ("bytea", ["'\\x00ff5c27'"], ""),
    ("uuid", ["'00000000-0000-0000-0000-000000000000'"], ""),
    ("json", ['\'{"b": 1,  "b": [2.50]}\''], ""),
    ("jsonb", ['\'{"b": 1.00, "a": null}\''], ""),
    ("xml", ["'<a b=\"1\">ä</a>'"], ""),
    ("inet", ["'192.168.0.1/24'", "'::1'"], ""),
    ("cidr", ["'10.0.0.0/8'"], ""),
    ("macaddr", ["'08:00:2b:01:02:03'"], ""),
    ("bit(4)", ["B'1010'"], ""),
    ("bit varying", ["B'10'", "B''"], ""),
    ("point", ["'(1,2.5)'"], ""),
    ("polygon", ["'((0,0),(1,1),(1,0))'"], ""),
    ("tsvector", ["'a:1A fat:2 cat:3'"], ""),
    ("int4range", ["'[1,5)'", "'empty'"], ""),
    ("tstzrange", ["'[2026-01-01 00:00:00+00,)'"], ""),
    ("nummultirange", ["'{[1.0,2.50),(7,)}'"], ""),
    ("oid", ["4294967295"], ""),
    ("int[]", ["'{1,NULL,-3}'", "'[4:5]={1,2}'", "'{}'", "'{{1,2},{3,4}}'"], "integer[]"),
    ("text[][]", ['\'{{a,"b,"},{NULL,"NULL"}}\''], "text[]"),
    ("numeric[]", ["'{1.50,NaN}'"], ""),
    ("date[]", ["'{infinity,2026-01-01}'"], ""),
    ("money", ["12.34"], "text"),
    ("regclass", ["'pg_class'"], "text"),
    ("mood", ["'sad'", "'it''s \"odd\"'"], "text"),
    ("mood[]", ["'{sad,NULL}'"], "text[]"),
    ("amount", ["1.50"], "numeric"),
    ("code", ["'ab'"], "character(3)"),
    ("pair", ["ROW(1, 'a \"b\"')"], "text"),
]
DEFINITIONS = """
    CREATE TYPE mood AS ENUM ('sad', 'it''s "odd"'); CREATE TYPE pair AS (a int, b text);
    CREATE DOMAIN amount AS numeric CHECK (VALUE > 0); CREATE DOMAIN code AS char(3);
"""
SPEC = """
version: 1
flow: natives
state: state
spark: {{url: sail}}
connections:
  src: {{type: postgres, url: "{source}"}}
  dst: {{type: postgres, url: "{target}"}}
tables:
  odd: {{from: src:public.odd, to: "{to}:public.copied", {rules}}}
"""
MODES = {
    "append": "mode: append, cursor: none",
    "truncate": "mode: truncate",
    "merge": "mode: merge, key: [ID]",
    "scd2": "mode: scd2, key: [ID], scd2: {valid_from: now}",
}


#: Rows that are inserted, updated and deleted after a change, a new row and, in truncate, a row less.
CHANGED = {"truncate": [4, 0, 4], "merge": [1, 1, 0]}


@dataclass(frozen=True)
class Pair:
    """Two databases of one server, and the flow between them."""

    flow: Flow
    source: str
    target: str

    def write(self, rules: str, to: str = "dst") -> None:
        hidden = [url.replace("etl-secret", "${secret:env:PG_PASSWORD}") for url in (self.source, self.target)]
        self.flow.write(SPEC.format(source=hidden[0], target=hidden[1], rules=rules, to=to))

    def way(self) -> str:
        return str(self.flow.plan()["steps"][0]["via"])

    def run_sql(self, statement: str) -> None:
        with psycopg.connect(self.source, autocommit=True) as connection:
            connection.execute(statement.encode())

    def must_be_equal(self, to: str = "dst") -> None:
        names = [f"c{at}" for at, _ in enumerate(TYPES)]
        found = texts(self.target if to == "dst" else self.source, "copied", names)
        wanted = texts(self.source, "odd", names)
        assert len(found) == len(wanted)
        for one, other in zip(found, wanted, strict=True):
            assert {at: pair for at, pair in enumerate(zip(one, other, strict=True)) if pair[0] != pair[1]} == {}


def texts(url: str, table: str, names: list[str]) -> list[Row]:
    """Every row as PostgreSQL's text of its values."""
    with psycopg.connect(url) as connection:
        listed = sql.SQL(", ").join(sql.SQL("{}::text").format(sql.Identifier(name)) for name in ["ID", *names])
        query = sql.SQL("SELECT {} FROM {} ORDER BY {}").format(listed, sql.Identifier(table), sql.Identifier("ID"))
        return connection.execute(query).fetchall()


def natives(url: str, table: str) -> dict[str, str]:
    with psycopg.connect(url) as connection:
        return dict(
            connection.execute(
                "SELECT attname, format_type(atttypid, atttypmod) FROM pg_attribute"
                " WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped",
                [table],
            ).fetchall()
        )


@pytest.fixture
def pair(tmp_path: Path, postgres_server: str, postgres_database: str) -> Iterator[Pair]:
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute(DEFINITIONS)
        columns = ", ".join(f"c{at} {kind}" for at, (kind, _, _) in enumerate(TYPES))
        connection.execute(f'CREATE TABLE odd ("ID" int PRIMARY KEY, {columns})'.encode())
        for number in range(max(len(values) for _, values, _ in TYPES)):
            filled = [(at, values[number]) for at, (_, values, _) in enumerate(TYPES) if number < len(values)]
            names, values = ", ".join(f"c{at}" for at, _ in filled), ", ".join(value for _, value in filled)
            connection.execute(f'INSERT INTO odd ("ID", {names}) VALUES ({number}, {values})'.encode())
    with postgres.database(postgres_server, postgres_database.rpartition("/")[2] + "_copy") as target:
        yield Pair(Flow(tmp_path, {"PG_PASSWORD": "etl-secret"}), postgres_database, target)


@pytest.mark.parametrize(
    ("mode", "to"),
    [
        pytest.param(mode, to, marks=() if (mode, to) == ("merge", "dst") else pytest.mark.full)
        for mode in ("append", "truncate", "merge")
        for to in ("dst", "src")
    ],
)
def test_values_and_types_are_kept_undecoded(mode: str, to: str, pair: Pair) -> None:
    pair.write(MODES[mode], to)
    assert pair.way() == "undecoded"
    pair.flow.apply()
    pair.must_be_equal(to)
    target = pair.target if to == "dst" else pair.source
    made = natives(target, "copied")
    assert made == {"ID": "integer", **{f"c{at}": other or kind for at, (kind, _, other) in enumerate(TYPES)}}
    if mode == "append":
        return
    pair.run_sql('UPDATE odd SET c0 = 1.500 WHERE "ID" = 2; INSERT INTO odd ("ID") VALUES (100)')
    if mode == "truncate":
        pair.run_sql('DELETE FROM odd WHERE "ID" = 0')
    assert pair.way() == "undecoded"
    effects = pair.flow.plan("--effects")["steps"][0]["effects"]
    (step,) = pair.flow.apply("--format", "json").json()["tables"]
    pair.must_be_equal(to)
    named = ("inserted", "updated", "deleted")
    assert [effects[name] for name in named] == [step["rows"][name] or 0 for name in named] == CHANGED[mode]


@pytest.mark.full
@pytest.mark.parametrize("mode", ["append", "truncate", "merge", "scd2"])
def test_natives_are_kept_when_values_are_needed(mode: str, pair: Pair) -> None:
    """What flowctl's own types do not have is left out: see the test of the rows passed on as they are."""
    left_out = ("real", "double precision") if mode == "scd2" else ()  # Sail does not hash them as Spark does
    kept = [
        at for at, (kind, values, _) in enumerate(TYPES) if not _is_undecodable(kind, values) and kind not in left_out
    ]
    listed = ", ".join(["ID", *(f"c{at}" for at in kept)])
    pair.write(f"{MODES[mode]}, expect: [{{column: ID, not_null: true}}], columns: {{include: [{listed}]}}")
    assert pair.way() != "undecoded"
    pair.flow.apply()
    made = natives(pair.target, "copied")
    assert {f"c{at}": made[f"c{at}"] for at in kept} == {f"c{at}": TYPES[at][2] or TYPES[at][0] for at in kept}
    pair.run_sql('UPDATE odd SET c0 = 1.500 WHERE "ID" = 2; INSERT INTO odd ("ID") VALUES (100)')
    if mode != "append":
        pair.flow.apply()
        if mode == "scd2":
            with psycopg.connect(pair.target) as connection:
                connection.execute("CREATE VIEW current AS SELECT * FROM copied WHERE is_current")
        current = "current" if mode == "scd2" else "copied"
        names = [f"c{at}" for at in kept]
        assert texts(pair.target, current, names) == texts(pair.source, "odd", names)


def _is_undecodable(kind: str, values: list[str]) -> bool:
    """Infinite and early dates, and arrays with other bounds: refused by name where values are decoded."""
    is_early = kind.startswith(("date", "timestamp")) and any("infinity" in one or "BC" in one for one in values)
    return is_early or any("[4:5]" in one for one in values) or kind == "numeric(5,2)"


def test_what_needs_values_is_named_in_the_plan(pair: Pair) -> None:
    some = "columns: {include: [ID, c17]}"  # Sail does not hash floating-point numbers as Spark does
    reasons = {
        "mode: truncate, expect: [{column: ID, not_null: true}]": "expect needs their values",
        "mode: truncate, columns: {mask: {c0: sha256}}": "columns.mask needs their values",
        "mode: truncate, guard: {max_shrink: 5%}": "max_shrink",
        f"mode: append, cursor: {{column: ID}}, {some}": "append recognizes rows at its position by their values",
        "mode: merge, key: [c17]": "`key` is not the source's primary key",
        f"mode: scd2, key: [ID], scd2: {{valid_from: now}}, {some}": "a history compares hashes of rows",
    }
    for rules, reason in reasons.items():
        pair.write(rules)
        done = pair.flow.run("plan", "flow.yaml", "--verbose")
        assert reason in done.words and "copied" in done.words, done.words
    pair.write(MODES["truncate"])
    assert "copied undecoded by binary COPY" in pair.flow.run("plan", "flow.yaml", "--verbose", expect=0).words
    pair.write(MODES["truncate"], "src")
    assert "inside the database by INSERT … SELECT" in pair.flow.run("plan", "flow.yaml", "--verbose", expect=0).words


def test_rows_that_are_passed_on_need_no_engine(pair: Pair) -> None:
    pair.write(MODES["truncate"])
    without = "import sys; sys.modules['pyspark'] = None; from flowctl.cli.main import main; main()"
    done = Flow(pair.flow.folder, pair.flow.env, ("-c", without)).apply()
    assert "will start" not in done.words
    pair.must_be_equal()


@pytest.mark.full
def test_an_existing_column_of_another_type_is_filled_by_value(pair: Pair) -> None:
    pair.write("mode: truncate, columns: {include: [ID, c0]}")
    pair.flow.apply()
    with psycopg.connect(pair.target, autocommit=True) as connection:
        connection.execute("ALTER TABLE copied ALTER COLUMN c0 TYPE text")
    done = pair.flow.run("plan", "flow.yaml", "--verbose")
    assert "c0 is numeric in the source, text in the target" in done.words
    pair.flow.apply()
    assert texts(pair.target, "copied", ["c0"]) == texts(pair.source, "odd", ["c0"])


ORDERS = """
    CREATE TABLE orders (id int PRIMARY KEY, note char(20), at timestamptz, span int4range, n numeric);
    INSERT INTO orders SELECT n, 'first', 'infinity', int4range(n, n + 1), n / 3.0 FROM generate_series(1, 20000) n;
    ANALYZE orders;
"""
#: Once it is committed, an append without a cursor appends everything again.
COMMITTED: list[Point] = ["after_commit", "before_record", "after_record"]
BEFORE = [point for point in POINTS if point not in ("after_stage", *COMMITTED)]
CHANGES = {
    "append": [],
    "truncate": ["DELETE FROM orders WHERE id = {n}", "UPDATE orders SET note = 'changed {n}' WHERE id = 50 + {n}"],
    "merge": ["UPDATE orders SET n = n * 1.0 WHERE id = 50 + {n}", "INSERT INTO orders (id) VALUES (20000 + {n})"],
}


@pytest.fixture
def orders(tmp_path: Path, postgres_server: str, postgres_database: str) -> Iterator[Pair]:
    with psycopg.connect(postgres_database, autocommit=True) as connection:
        connection.execute(ORDERS)
    with postgres.database(postgres_server, postgres_database.rpartition("/")[2] + "_copy") as target:
        yield Pair(Flow(tmp_path, {"PG_PASSWORD": "etl-secret"}), postgres_database, target)


def write_orders(pair: Pair, rules: str, to: str = "dst") -> None:
    pair.write(rules, to)
    pair.flow.write(pair.flow.spec.read_text().replace("public.odd", "public.orders"))


def content(url: str, table: str) -> list[Row]:
    with psycopg.connect(url) as connection:
        columns = "id, note, at::text, span::text, n::text"
        query = sql.SQL("SELECT {} FROM {} ORDER BY id").format(sql.SQL(columns), sql.Identifier(table))
        return connection.execute(query).fetchall()


@pytest.mark.parametrize(
    ("mode", "to", "points"),
    [
        pytest.param("merge", "dst", ("in_commit", "after_commit"), id="merge-main"),
        *(
            pytest.param(mode, to, BEFORE if mode == "append" else BEFORE + COMMITTED, marks=pytest.mark.full)
            for mode in CHANGES
            for to in ("dst", "src")
        ),
    ],
)
def test_a_killed_copy_loses_and_doubles_nothing(mode: str, to: str, points: Sequence[Point], orders: Pair) -> None:
    write_orders(orders, {**MODES, "merge": "mode: merge, key: [id], read: {splits: 4}"}[mode], to)
    target = orders.target if to == "dst" else orders.source
    for round, point in enumerate(points):
        for change in CHANGES[mode]:
            orders.run_sql(change.format(n=round + 1))
        killed = orders.flow.apply(env={"FLOWCTL_CRASH_AT": point}, expect=None)
        assert killed.code == -9, f"{point} was not reached: {killed.out}{killed.err}"
        assert orders.way() == "undecoded" or point in COMMITTED
        orders.flow.apply(expect=0)
        wanted = content(orders.source, "orders")
        found = content(target, "copied")
        if mode == "append":
            assert found == sorted(wanted * (round + 1), key=lambda row: row[0])
        else:
            assert found == wanted
    with psycopg.connect(target) as connection:
        left = connection.execute("SELECT relname FROM pg_class WHERE relname LIKE '\\_flowctl\\_stage%'").fetchall()
    assert left == []


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("ALTER TABLE orders ALTER COLUMN note TYPE text", "column note of public.orders was altered"),
        ("ALTER TABLE orders DROP CONSTRAINT orders_pkey", "public.orders was altered"),
        ("ALTER TABLE orders RENAME TO gone; CREATE TABLE orders (LIKE gone INCLUDING ALL)", "dropped and recreated"),
    ],
)
def test_ddl_between_the_plan_and_the_read_stops_the_table(statement: str, named: str, orders: Pair) -> None:
    """The run is stopped once its plan is made, before it opens the source."""
    write_orders(orders, "mode: merge, key: [id]")
    stopping = {"FLOWCTL_CRASH_AT": "after_intent", "FLOWCTL_CRASH_WITH": "SIGSTOP"}
    process = orders.flow.start("apply", "flow.yaml", env=stopping)
    wait_until_stopped(process)
    orders.run_sql(statement)
    out, err = end_of_stopped(process)
    assert process.returncode == 6, out + err
    assert named in " ".join((out + err).split())
    with psycopg.connect(orders.target) as connection:
        assert connection.execute("SELECT to_regclass('copied')").fetchone() == (None,)


def test_a_pattern_reads_every_kind_of_relation_undecoded(orders: Pair) -> None:
    """Foreign tables are read too, but decoded: a snapshot does not cover the other server."""
    here = urlsplit(orders.source)
    orders.run_sql(
        f"""
        CREATE VIEW seen AS SELECT id, note FROM orders WHERE id < 10;
        CREATE MATERIALIZED VIEW kept AS TABLE seen;
        CREATE TABLE parts (id int, at timestamp) PARTITION BY LIST (id);
        CREATE TABLE part PARTITION OF parts DEFAULT;
        INSERT INTO parts VALUES (1, 'infinity');
        CREATE EXTENSION postgres_fdw;
        CREATE SERVER far FOREIGN DATA WRAPPER postgres_fdw
            OPTIONS (host '{here.hostname}', port '{here.port}', dbname '{here.path[1:]}');
        CREATE USER MAPPING FOR CURRENT_USER SERVER far OPTIONS (user '{here.username}', password '{here.password}');
        CREATE FOREIGN TABLE other (id int, note char(20)) SERVER far OPTIONS (table_name 'kept');
        """
    )
    orders.write("mode: truncate")
    entry = '"${table}": {from: src:public.*, to: "dst:public.${table}", mode: truncate'
    text = orders.flow.spec.read_text().partition("  odd:")[0]
    orders.flow.write(f"{text}  {entry}}}\n")
    assert "seen" not in orders.flow.actions()
    orders.flow.write(f"{text}  {entry}, include_views: true}}\n")
    ways = {step["id"]: step["via"] for step in orders.flow.plan()["steps"]}
    assert ways == {**dict.fromkeys(["kept", "orders", "parts", "seen"], "undecoded"), "other": "direct"}
    orders.flow.apply()
    for name in ways:
        with psycopg.connect(orders.source) as source, psycopg.connect(orders.target) as target:
            query = sql.SQL("SELECT t::text FROM {} t ORDER BY id").format(sql.Identifier(name))
            assert target.execute(query).fetchall() == source.execute(query).fetchall()


def test_servers_convert_the_texts_of_their_encodings(orders: Pair, postgres_server: str) -> None:
    name = orders.target.rpartition("/")[2] + "_latin"
    with postgres.database(postgres_server, name, "LATIN1") as target:
        latin = replace(orders, target=target)
        write_orders(latin, "mode: truncate, columns: {include: [id, note]}")
        latin.run_sql("UPDATE orders SET note = 'Käse ½ é' WHERE id = 7")
        latin.flow.apply()
        with psycopg.connect(latin.target) as connection:
            query = "SELECT encode(convert_to(note, 'LATIN1'), 'hex') FROM copied WHERE id = 7"
            assert connection.execute(query).fetchone() == ("Käse ½ é".encode("latin-1").hex(),)
        latin.run_sql("UPDATE orders SET note = 'Ω' WHERE id = 7")
        refused = latin.flow.apply(expect=4)
        assert 'has no equivalent in encoding "LATIN1"' in refused.words
