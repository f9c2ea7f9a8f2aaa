"""Every type of the type table, extremes included, PostgreSQL → Delta → PostgreSQL: equal, or refused by name."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from tests.e2e.flows import Flow

#: Column, type, values as SQL. What arrives is compared as PostgreSQL's own text of both sides.
COLUMNS: dict[str, tuple[str, list[str]]] = {
    "c_smallint": ("smallint", ["-32768", "32767"]),
    "c_int": ("int", ["-2147483648", "2147483647"]),
    "c_bigint": ("bigint", ["-9223372036854775808", "9223372036854775807"]),
    "c_numeric": ("numeric(38,10)", ["9999999999999999999999999999.9999999999", "-0.0000000001"]),
    "c_free": ("numeric", ["123456789012345678901234567890123456789012345.678", "'NaN'"]),
    "c_wide": ("numeric(60,2)", ["1e50", "-0.01"]),
    "c_real": ("real", ["'NaN'", "'-Infinity'"]),
    "c_double": ("double precision", ["'Infinity'", "1.7976931348623157e308"]),
    "c_bool": ("boolean", ["true", "false"]),
    "c_date": ("date", ["'0001-01-01'", "'9999-12-31'"]),
    "c_reform": ("date", ["'1582-10-10'", "'1582-10-15'"]),
    "c_time": ("time", ["'23:59:59.999999'", "'00:00'"]),
    "c_interval": ("interval", ["'1 year -3 days 04:05:06.789'", "'-00:00:00.000001'"]),
    "c_timestamp": ("timestamp", ["'0001-01-01 00:00:00'", "'9999-12-31 23:59:59.999999'"]),
    "c_summer": ("timestamp", ["'2026-03-29 02:30:00'", "'1582-10-10 02:30:00.000001'"]),
    "c_timestamptz": ("timestamptz", ["'0001-01-01 12:00:00+00'", "'9999-12-31 20:59:59.999999+00'"]),
    "c_text": ("text", ["''", "E'a \"quoted\" \\\\ line\\nnext\\ttab, comma; 😀 \\\\N'"]),
    "c_long": ("text", ["repeat('x', 1048576)", "'NULL'"]),
    "c_varchar": ("varchar(10)", ["'short'", "' '"]),
    "c_char": ("char(5)", ["'ab'", "''"]),
    "c_uuid": ("uuid", ["'00000000-0000-0000-0000-000000000000'", "gen_random_uuid()"]),
    "c_json": ("json", ["'{\"a\": [1, 2.50, null]}'", "'\"text\"'"]),
    "c_jsonb": ("jsonb", ['\'{"b": 1, "a": {}}\'', "'null'"]),
    "c_inet": ("inet", ["'192.168.0.1/24'", "'::1'"]),
    "c_bit": ("bit(4)", ["B'1010'", "B'0000'"]),
    "c_money": ("money", ["'12.34'", "'-0.01'"]),
    "c_xml": ("xml", ["'<a>b</a>'", "'<c/>'"]),
    "c_range": ("int4range", ["'[1,5)'", "'empty'"]),
    "c_bytea": ("bytea", ["'\\x'", "'\\x00ff5c27'"]),
    "c_ints": ("int[]", ["'{}'", "'{1,NULL,-3}'"]),
    "c_texts": ("text[]", ["ARRAY['', 'a\"b', NULL, 'NULL', '{x,y}', E'line\\nnext']", "ARRAY['😀']"]),
    "c_numerics": ("numeric(10,2)[]", ["'{1.10,NULL}'", "'{-99999999.99}'"]),
    "c_matrix": ("int[][]", ["'{{1,2},{3,4}}'", "'{{5}}'"]),
}
SPEC = """
version: 1
flow: types
state: state
spark: {{url: "{spark}"}}
connections:
  pg: {{type: postgres, url: "{url}"}}
  lake: {{type: delta, path: lake}}
tables:
  there: {{from: pg:public.extremes, to: lake:extremes, mode: truncate}}
  back: {{from: {{sql: "SELECT * FROM {{{{ ref('there') }}}}"}}, to: pg:public.back, mode: truncate}}
"""


STRAIGHT = SPEC.replace("from: {{sql: \"SELECT * FROM {{{{ ref('there') }}}}\"}}", "from: pg:public.extremes")


@pytest.mark.parametrize(
    "way",
    [
        pytest.param("on Spark", marks=pytest.mark.full),
        pytest.param("there on Sail, back on Spark", marks=pytest.mark.full),
        "straight on Sail",
    ],
)
def test_every_type_survives_the_round_trip(
    way: str, tmp_path: Path, postgres_database: str, request: pytest.FixtureRequest
) -> None:
    flow = Flow(tmp_path, {"PG_PASSWORD": "etl-secret"})
    url = postgres_database.replace("etl-secret", "${secret:env:PG_PASSWORD}")
    with psycopg.connect(postgres_database) as connection:
        columns = ", ".join(f"{name} {kind}" for name, (kind, _) in COLUMNS.items())
        connection.execute(f"CREATE TABLE extremes (id int PRIMARY KEY, {columns})")
        for row in range(2):
            values = ", ".join(values[row] for _, values in COLUMNS.values())
            connection.execute(f"INSERT INTO extremes VALUES ({row}, {values})")
        connection.execute("INSERT INTO extremes (id) VALUES (2)")
    match way:
        case "on Spark":
            flow.write(SPEC.format(url=url, spark=request.getfixturevalue("connect_server")))
            flow.apply()
        case "straight on Sail":
            flow.write(STRAIGHT.format(url=url, spark="sail"))
            flow.apply()
        case _:
            flow.write(STRAIGHT.format(url=url, spark="sail"))
            flow.apply("--select", "there")
            flow.write(SPEC.format(url=url, spark=request.getfixturevalue("connect_server")))
            flow.apply("--select", "back")
    with psycopg.connect(postgres_database) as connection:
        wrong = {name: row for name in COLUMNS for row in differences(connection, name)}
    assert not wrong


def differences(connection: psycopg.Connection, name: str) -> list[tuple[str | None, ...]]:
    """What arrived must be the value as its output function writes it, or as a cast to text does (inet differs)."""
    written = [f"CASE WHEN {t}.{name} IS NOT NULL THEN format('%s', {t}.{name}) END" for t in "sb"]
    query = f"SELECT s.{name}::text, {', '.join(written)} FROM extremes s FULL JOIN back b USING (id)"
    return [row for row in connection.execute(query).fetchall() if row[2] not in row[:2]]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("numeric(10,2)", "'NaN'"),
        pytest.param("timestamp without time zone", "'infinity'", marks=pytest.mark.full),
        pytest.param("timestamp with time zone", "'-infinity'", marks=pytest.mark.full),
        pytest.param("date", "'infinity'", marks=pytest.mark.full),
        ("date", "'0044-03-15 BC'"),
    ],
)
@pytest.mark.parametrize("engine", ["sail", pytest.param("connect", marks=pytest.mark.full)])
def test_what_cannot_be_carried_exactly_is_refused_by_name(
    engine: str, kind: str, value: str, tmp_path: Path, postgres_database: str, request: pytest.FixtureRequest
) -> None:
    flow = Flow(tmp_path, {"PG_PASSWORD": "etl-secret"})
    url = postgres_database.replace("etl-secret", "${secret:env:PG_PASSWORD}")
    flow.write(
        STRAIGHT.format(url=url, spark="sail" if engine == "sail" else request.getfixturevalue("connect_server"))
    )
    with psycopg.connect(postgres_database) as connection:
        connection.execute(f"CREATE TABLE extremes (id int, odd {kind})")
        connection.execute(f"INSERT INTO extremes VALUES (1, {value})")
    done = flow.apply(expect=4)
    assert f"column odd ({kind.partition('(')[0]}" in done.err, done.err
