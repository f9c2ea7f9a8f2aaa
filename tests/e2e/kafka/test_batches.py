"""Long backlogs of topics, taken in several commits: every message once, and progress, whatever is killed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from flowctl.crashpoints import POINTS, TOPIC_POINTS, Point, TopicPoint
from tests.e2e.flows import Flow
from tests.e2e.kafka.test_merging import FORMATS, Customers
from tests.e2e.kafka.test_topics import COLUMNS, Clicks, write_bus, write_tables
from tests.e2e.kafka.test_writing import Orders, must_be_merged
from tests.e2e.targets import ENV, Databases, Kind, TargetPlace, place
from tests.services import kafka

#: Killed between two commits, and while one may be in the target and is not recorded.
SOME: tuple[Point, ...] = ("after_record", "after_commit")


def write_flow(flow: Flow, clicks: Clicks, target: TargetPlace, rows: int, more: str = "") -> None:
    table = f"from: bus:{clicks.name}, format: {{type: text}}, to: out:{target.object}, mode: append"
    write_tables(flow, clicks.address, target.connection, f"  clicks: {{{table}, batch: {{rows: {rows}}}{more}}}")


def planned(flow: Flow) -> dict[str, Any]:
    step: dict[str, Any] = flow.plan()["steps"][-1]
    return step


def last_run(flow: Flow) -> dict[str, Any]:
    run: dict[str, Any] = flow.run("runs", "flow.yaml", "--format", "json", expect=0).json()["runs"][0]
    return run


@pytest.mark.parametrize(
    ("kind", "points"),
    [
        pytest.param("sqlite", SOME, id="sqlite-some"),
        *(
            pytest.param(kind, POINTS, id=f"{kind}-all", marks=pytest.mark.full)
            for kind in ("delta", "postgres", "sqlite")
        ),
    ],
)
def test_a_killed_apply_loses_and_doubles_no_message(
    kind: Kind, points: Sequence[Point], tmp_path: Path, databases: Databases, kafka_broker: str, topic: str
) -> None:
    flow, target = Flow(tmp_path, ENV), place(kind, tmp_path, databases)
    clicks = Clicks(kafka_broker, topic)
    write_flow(flow, clicks, target, 30)
    for point in (one for one in points if one != "after_stage"):
        clicks.send(50)  # to each of two partitions
        assert planned(flow)["commits"] == 4
        flow.apply(env={"FLOWCTL_CRASH_AT": point}, expect=-9)
        clicks.send(10)
        flow.apply()
        clicks.must_be_in(target)
    assert flow.actions() == {"clicks": "none"}


@pytest.mark.full
@pytest.mark.parametrize("kind", ["delta", "sqlite"])
def test_a_backlog_shrinks_though_each_run_is_killed_after_its_first_commit(
    kind: Kind, tmp_path: Path, kafka_broker: str, topic: str
) -> None:
    flow, target = Flow(tmp_path), place(kind, tmp_path)
    clicks = Clicks(kafka_broker, topic)
    write_flow(flow, clicks, target, 30)
    clicks.send(48)
    for commits in (4, 3, 2):
        step = planned(flow)
        assert (step["commits"], step["batch_rows"]) == (commits, 30)
        assert step["reason"].endswith(f"in {commits} commits of at most 30 messages")
        flow.apply(env={"FLOWCTL_CRASH_AT": "after_record"}, expect=-9)
        assert len(target.rows(COLUMNS)) == 96 - 24 * (commits - 1)
    assert "commits" not in planned(flow)
    flow.apply()
    clicks.must_be_in(target)


def test_one_run_and_a_saved_plan_end_where_the_plan_says(tmp_path: Path, kafka_broker: str, topic: str) -> None:
    flow, target = Flow(tmp_path), place("sqlite", tmp_path)
    clicks, group = Clicks(kafka_broker, topic), f"flowctl-{topic}"
    write_flow(flow, clicks, target, 30)
    flow.write(flow.spec.read_text().replace(f"bus:{topic}", f"{{connection: bus, topic: {topic}, group: {group}}}"))
    clicks.send(48)
    step = flow.plan("--out", "plan.json")["steps"][0]
    assert step["state_after"]["position"]["offsets"] == {"0": 48, "1": 48}
    sent = list(clicks.sent)
    clicks.send(7)
    done = flow.apply("--plan", "plan.json")
    assert target.rows(COLUMNS) == sorted(sent, key=repr)
    assert kafka.group_offsets(kafka_broker, group) == {(topic, 0): 48, (topic, 1): 48}
    assert done.words.count("24 inserted") == 4
    (table,) = last_run(flow)["tables"]
    assert (table["seq"], table["rows"]["inserted"], table["outcome"]) == (4, 96, "committed")
    assert table["interval"]["upper"]["offsets"] == {"0": 48, "1": 48}
    flow.apply()
    clicks.must_be_in(target)


def test_a_run_that_is_asked_to_stop_keeps_what_is_committed(tmp_path: Path, kafka_broker: str, topic: str) -> None:
    flow, target = Flow(tmp_path), place("sqlite", tmp_path)
    clicks = Clicks(kafka_broker, topic)
    write_flow(flow, clicks, target, 30)
    clicks.send(48)
    flow.apply(env={"FLOWCTL_CRASH_AT": "after_record", "FLOWCTL_CRASH_WITH": "SIGTERM"}, expect=None)
    (table,) = last_run(flow)["tables"]
    assert table["outcome"] in ("skipped", "failed")  # the second may have begun before the process is told
    assert (table["seq"], table["rows"]["inserted"]) == (1, 24)
    assert planned(flow)["commits"] == 3
    flow.apply()
    clicks.must_be_in(target)


@pytest.mark.full
def test_a_message_that_does_not_fit_stops_only_what_follows(tmp_path: Path, kafka_broker: str, topic: str) -> None:
    """What was committed before it stays, and counts. Dead letters are read again with the first commit."""
    kafka.create_topic(kafka_broker, topic)
    fits = [f'{{"id": {at}}}'.encode() for at in range(40)]
    kafka.send(kafka_broker, topic, [*fits[:15], b"nonsense", *fits[15:]])
    flow, target = Flow(tmp_path), place("delta", tmp_path)
    format = "{type: json, schema: {id: bigint}}"
    table = f"from: bus:{topic}, format: {format}, to: out:{target.object}, mode: append, batch: {{rows: 10}}"
    write_tables(flow, kafka_broker, target.connection, f"  clicks: {{{table}}}")
    refused = flow.apply(expect=4)
    assert "message 15 of partition 0" in refused.words
    (run,) = last_run(flow)["tables"]
    assert (run["seq"], run["rows"]["inserted"], run["outcome"]) == (1, 8, "failed")
    write_tables(flow, kafka_broker, target.connection, f"  clicks: {{{table}, dead_letters: {{}}}}")
    flow.apply()
    assert target.rows(("id",)) == sorted(((at,) for at in range(40)), key=repr)
    (run,) = last_run(flow)["tables"]
    assert (run["rows"]["read"], run["rows"]["quarantined"]) == (33, 1)
    kafka.send(kafka_broker, topic, [f'{{"id": {at}}}'.encode() for at in range(40, 65)])
    flow.run("dlq", "replay", "flow.yaml", "clicks", "--yes", expect=0)
    step = planned(flow)
    assert "in 3 commits of at most 10 messages" in step["reason"]
    flow.apply()
    (run,) = last_run(flow)["tables"]
    assert (run["rows"]["inserted"], run["rows"]["quarantined"]) == (25, 1)
    assert target.rows(("id",)) == sorted(((at,) for at in range(65)), key=repr)


@pytest.mark.full
@pytest.mark.parametrize(
    "kind", ["sqlite", *(pytest.param(kind, marks=pytest.mark.full) for kind in ("delta", "postgres"))]
)
def test_the_last_message_of_each_key_counts_over_many_commits(
    kind: Kind, tmp_path: Path, databases: Databases, kafka_broker: str, topic: str
) -> None:
    flow, target = Flow(tmp_path, ENV), place(kind, tmp_path, databases)
    customers = Customers(kafka_broker, topic, "keys")
    table = f"from: bus:{topic}, format: {FORMATS['keys']}, to: out:{target.object}, mode: merge, key: [id]"
    write_tables(flow, kafka_broker, target.connection, f"  customers: {{{table}, batch: {{rows: 20}}}}")
    for point in SOME:
        customers.change(100)
        flow.apply(env={"FLOWCTL_CRASH_AT": point}, expect=-9)
        customers.change(30)
        flow.apply()
        customers.must_be_in(target)


@pytest.mark.full
def test_a_history_is_the_same_in_one_commit_and_in_many(tmp_path: Path, kafka_broker: str, topic: str) -> None:
    flow = Flow(tmp_path)
    customers = Customers(kafka_broker, topic, "keys")
    table = f"from: bus:{topic}, format: {FORMATS['keys']}, mode: scd2, key: [id], scd2: {{valid_from: commit}}"
    tables = f"  whole: {{{table}, to: out:whole}}\n  parts: {{{table}, to: out:parts, batch: {{rows: 20}}}}"
    write_tables(flow, kafka_broker, "{type: delta, path: lake}", tables)
    customers.change(200)
    flow.apply()
    columns = ("id", "name", "valid_from", "valid_to", "is_current")
    whole, parts = (place("delta", tmp_path).named(name).rows(columns) for name in ("whole", "parts"))
    assert whole == parts
    assert len({id for id, *_ in whole}) > 10


@pytest.mark.full
@pytest.mark.parametrize(
    "points",
    [
        pytest.param(("after_record", "in_transaction"), id="some"),
        pytest.param((*POINTS, *TOPIC_POINTS), id="all", marks=pytest.mark.full),
    ],
)
def test_from_topic_to_topic(
    points: Sequence[Point | TopicPoint], tmp_path: Path, kafka_broker: str, topic: str
) -> None:
    flow, out = Flow(tmp_path), f"{topic}-out"
    orders = Orders(tmp_path, kafka_broker, "topic", topic)
    to = f"{{connection: bus, topic: {out}, create: {{partitions: 3}}}}"
    write_bus(
        flow, kafka_broker, "", f"  orders: {{{orders.yaml}, to: {to}, mode: merge, key: [id], batch: {{rows: 30}}}}"
    )
    for point in points:
        orders.add(100)
        flow.apply(env={"FLOWCTL_CRASH_AT": point}, expect=-9)
        orders.add(10)
        flow.apply()
        must_be_merged(orders, out)
    assert flow.actions() == {"orders": "none"}
