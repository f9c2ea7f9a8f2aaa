"""A second flow reads what another one has captured: no second slot, nothing missed, nothing twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.flows import Flow
from tests.e2e.streams.flow import flush, write_flow
from tests.e2e.streams.sources import database_of
from tests.e2e.streams.targets import DeltaPlace, are_equal, must_equal, must_have_every_change, slots
from tests.e2e.streams.test_follow import followed, wait_for
from tests.e2e.streams.test_tables import ONE, TWO, begun, execute, insert, must_have_all
from tests.e2e.streams.workload import TABLES, Workload

pytestmark = pytest.mark.server
LANDED = "landed: ../a/state/shop/streams/cdc"
PATTERN = '  "${table}": {from: "cdc:public.*", to: "lake:${table}", mode: merge}\n'


def flow_in(folder: Path, url: str, tables: str, stream: str) -> Flow:
    folder.mkdir()
    return write_flow(folder, url, [], tables, stream)


@pytest.mark.full
def test_a_second_flow_reads_what_the_first_captures(tmp_path: Path, source_url: str) -> None:
    (tmp_path / "a").mkdir()
    second = flow_in(tmp_path / "b", source_url, PATTERN, LANDED)
    execute(source_url, "SELECT 1")
    first = begun(tmp_path / "a", source_url, ONE + TWO, "buffer: {keep: 0s}, batch: {rows: 3}")
    second.apply()
    must_have_all(source_url, tmp_path / "b", ["one", "two"])
    assert not (tmp_path / "b" / "lake" / "three").exists()  # the first flow does not capture it
    for number in range(2, 4):
        insert(source_url, number)
        second.apply()  # nothing new yet
        first.apply()
        insert(source_url, 10 + number)  # not captured yet
        second.apply()
    first.apply()
    second.apply()
    must_have_all(source_url, tmp_path / "b", ["one", "two"])
    if source_url.startswith("postgres"):
        assert slots(source_url) == ["flowctl_shop_cdc"]


@pytest.mark.full
def test_what_the_first_flow_no_longer_has(tmp_path: Path, source_url: str) -> None:
    (tmp_path / "a").mkdir()
    first = begun(tmp_path / "a", source_url, ONE + TWO, "buffer: {keep: 0s}, batch: {rows: 3}")
    second = flow_in(tmp_path / "b", source_url, ONE + TWO, LANDED)
    second.apply()
    for number in range(20, 26):  # the first flow keeps nothing that it has applied
        insert(source_url, number, ["one"])
        first.apply()
    lost = second.apply(expect=6).words
    assert "the position is lost" in lost and "flowctl state resnapshot flow.yaml cdc" in lost
    second.run("state", "resnapshot", "flow.yaml", "cdc", "--yes", expect=0)
    second.apply()
    must_have_all(source_url, tmp_path / "b", ["one", "two"])

    write_flow(tmp_path / "a", source_url, [], ONE, "batch: {rows: 3}")
    insert(source_url, 50, ["one", "two"])
    first.apply()
    assert f"{database_of(source_url).prefix}two is not captured" in second.apply(expect=6).words


def test_nothing_was_captured_yet(tmp_path: Path, postgres_database: str) -> None:
    execute(postgres_database, "CREATE TABLE one (id int PRIMARY KEY, value text)")
    second = flow_in(tmp_path / "b", postgres_database, ONE, LANDED)
    assert "nothing has been captured in" in second.apply(expect=6).words
    second.write(second.spec.read_text().replace(LANDED, f"{LANDED}, slot: mine, heartbeat: 1m"))
    words = second.run("validate", "flow.yaml", expect=3).words
    assert words.count("has nothing of its own in the source") == 2


@pytest.mark.full
def test_two_flows_follow_one_slot(tmp_path: Path, source_url: str) -> None:
    workload = Workload(source_url, seed=51, big=20_000, rows=500)
    workload.create()
    log = '  orders_log: {from: "cdc:public.orders", to: "lake:orders_log", mode: append}\n'
    first = flow_in(tmp_path / "a", source_url, PATTERN, "batch: {every: 1s, rows: 2000}")
    second = flow_in(tmp_path / "b", source_url, PATTERN + log, f"{LANDED}, batch: {{every: 1s, rows: 700}}")
    first.apply()
    oracle = database_of(source_url).oracle()
    second.apply()
    with followed(first):
        workload.start(pause=0.02)
        for _ in range(8):
            killed = second.start("apply", "flow.yaml", "--follow")
            wait_for(lambda before=workload.transactions: workload.transactions > before + 40)  # type: ignore[misc]
            killed.kill()
            killed.communicate()
        with followed(second):
            workload.stop()
            flush(source_url)
            wait_for(lambda: are_equal(source_url, DeltaPlace(tmp_path / "b" / "lake")), 120)
    must_equal(source_url, DeltaPlace(tmp_path / "a" / "lake"), TABLES)
    must_have_every_change(oracle, DeltaPlace(tmp_path / "b" / "lake"), {"orders": "orders_log"})
    oracle.end()
