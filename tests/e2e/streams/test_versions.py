"""Streams on every supported major version of PostgreSQL, not only on the installed one."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from tests.e2e.streams.flow import flush, place, write_flow
from tests.e2e.streams.sources import database_of
from tests.e2e.streams.targets import DeltaPlace, must_be_history, must_be_marked, must_equal, must_have_every_change
from tests.e2e.streams.workload import Workload
from tests.services import postgres
from tests.services.postgres_versions import VERSIONS, programs

pytestmark = [pytest.mark.server, pytest.mark.full]

MORE = """
  orders_log: {from: "cdc:public.orders", to: "lake:orders_log", mode: append}
  customers_history: {from: "cdc:public.customers", to: "lake:customers_history", mode: scd2}
  documents_soft: {from: "cdc:public.documents", to: "lake:documents_soft", mode: merge, deletes: {action: soft}}
"""


@pytest.mark.parametrize("major", VERSIONS)
def test_a_stream_of_this_version(major: int, tmp_path: Path) -> None:
    with postgres.cluster(programs(major)) as made, made.started() as server, postgres.database(server, "shop") as url:
        workload = Workload(url, seed=major, big=20_000, rows=500)
        workload.create()
        flow = write_flow(tmp_path, url, ["dw", "lake"], MORE)
        oracle = database_of(url).oracle()
        flow.apply()
        for _ in range(3):
            workload.run(60)
            flush(url)
            flow.apply(expect=0)
            for target in ("dw", "lake"):
                must_equal(url, place(flow, url, target))
        lake = DeltaPlace(tmp_path / "lake")
        must_have_every_change(oracle, lake, {"orders": "orders_log"})
        must_be_history(url, lake, "customers", "customers_history", ["id"])
        must_be_marked(url, lake, "documents", "documents_soft")
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots")
