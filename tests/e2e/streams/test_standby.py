"""Tables that are read in full from a standby while the primary is written and captured."""

from __future__ import annotations

import time
from pathlib import Path

import psycopg
import pytest

from tests.e2e.streams.flow import flush, place, write_flow
from tests.e2e.streams.targets import must_equal
from tests.e2e.streams.workload import Workload
from tests.services import postgres
from tests.services.postgres_versions import programs

pytestmark = [pytest.mark.server, pytest.mark.full]


def wait_until_there(standby: str, primary: str) -> None:
    with psycopg.connect(primary, autocommit=True) as there, psycopg.connect(standby, autocommit=True) as here:
        ((head,),) = there.execute("SELECT pg_current_wal_flush_lsn()::text").fetchall()
        while not here.execute("SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", [head]).fetchall()[0][0]:
            time.sleep(0.1)


@pytest.mark.parametrize("major", [16, 18])
def test_tables_are_read_from_a_standby(major: int, tmp_path: Path) -> None:
    with (
        postgres.cluster(programs(major)) as primary,
        primary.started({"wal_keep_size": "512MB"}) as server,
        postgres.database(server, "shop") as url,
        postgres.standby_of(primary) as copy,
        copy.started({"max_standby_streaming_delay": "2s"}) as standby,
    ):
        workload = Workload(url, seed=major, big=20_000, rows=500)
        workload.create()
        replica = standby.rpartition("/")[0].replace("etl-secret", "${secret:env:PG_PASSWORD}") + "/shop"
        flow = write_flow(tmp_path, url, ["dw", "lake"], stream="snapshot: {from: replica}, batch: {rows: 400}")
        flow.write(flow.spec.read_text().replace("  dw:", f'  replica: {{type: postgres, url: "{replica}"}}\n  dw:'))
        flush(url)
        wait_until_there(f"{standby.rpartition('/')[0]}/shop", url)
        assert "tables are read in full from replica" in flow.run("plan", "flow.yaml", expect=0).words
        workload.start(pause=0.05)
        try:
            flow.apply()
        finally:
            workload.stop()
        flush(url)
        flow.apply()
        for target in ("dw", "lake"):
            must_equal(url, place(flow, url, target))
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("CREATE TABLE late (id int PRIMARY KEY); INSERT INTO late SELECT generate_series(1, 9)")
        flush(url)
        wait_until_there(f"{standby.rpartition('/')[0]}/shop", url)
        flow.apply()
        must_equal(url, place(flow, url, "lake"), ["late"])
        flow.write(flow.spec.read_text().replace("{from: replica}", "{from: dw}"))
        flow.run("state", "resnapshot", "flow.yaml", "lake_late", "--yes", expect=0)
        assert "the server for snapshots is no standby" in flow.run("plan", "flow.yaml", expect=6).words
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
