"""PostgreSQL → PostgreSQL, a history by keys of the source's own types: its observations have these types too, also of
columns that are not compared."""

from __future__ import annotations

from pathlib import Path

import psycopg

from tests.e2e.flows import Flow
from tests.services import postgres

SPEC = """
version: 1
flow: natives
state: state
spark: {{url: sail}}
connections:
  src: {{type: postgres, url: "{source}"}}
  dst: {{type: postgres, url: "{target}"}}
tables:
  owned: {{from: src:public.owned, to: dst:public.copied, mode: scd2, key: [id, n, i], scd2: {{valid_from: now}},
    compare: {{ignore: [t]}}}}
"""
VALUES = "id::text, n::text, i::text, t::text, note"


def test_a_history_by_keys_of_the_sources_own_types(
    tmp_path: Path, postgres_server: str, postgres_database: str
) -> None:
    flow = Flow(tmp_path, {"PG_PASSWORD": "etl-secret"})
    with (
        postgres.database(postgres_server, postgres_database.rpartition("/")[2] + "_copy") as target,
        psycopg.connect(postgres_database, autocommit=True) as source,
    ):
        hidden = [url.replace("etl-secret", "${secret:env:PG_PASSWORD}") for url in (postgres_database, target)]
        flow.write(SPEC.format(source=hidden[0], target=hidden[1]))
        source.execute("CREATE TABLE owned (id uuid, n numeric, i inet, t interval, note text, PRIMARY KEY (id, n, i))")
        source.execute(
            "INSERT INTO owned SELECT gen_random_uuid(), n, '10.0.0.1', '1 day', 'first'"
            " FROM generate_series(1, 3) AS n"
        )
        flow.apply()
        source.execute("UPDATE owned SET note = 'second', t = '24 hours' WHERE n = 2")
        flow.apply()
        with psycopg.connect(target) as copied:
            ((versions,),) = copied.execute("SELECT count(*) FROM copied").fetchall()
            current = copied.execute(f"SELECT {VALUES} FROM copied WHERE is_current ORDER BY n").fetchall()
        assert current == source.execute(f"SELECT {VALUES} FROM owned ORDER BY n").fetchall()
        assert versions == 4
