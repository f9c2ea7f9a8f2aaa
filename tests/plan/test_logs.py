"""Tables that are written to a log, which may have been there before: as topics have it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from flowctl.connectors.base import OpenContext
from flowctl.connectors.kafka import CAPABILITIES
from flowctl.connectors.kafka.client import Cluster
from flowctl.connectors.kafka.target import KafkaTarget
from flowctl.model import types
from flowctl.model.step import Load, Step, Stopped
from flowctl.model.table_info import Column, ObjectName, TableInfo
from flowctl.model.types import DataType
from flowctl.observe.world import Observed
from flowctl.spec.spec import Layout, TableSpec, TargetRef
from flowctl.spec.topic_layout import MessageFormat, TopicCreation, TopicLayout
from flowctl.state.document import TableState
from tests.plan.worlds import AMOUNT, ID, NEW, OLD, ORDERS, UPDATED_AT, committed, high, plan, recorded, source, world
from tests.plan.worlds import table as any_table

JSON_KEYS = {"format": "json", "schema": None, "partitions": 6}
TOPIC = KafkaTarget(Cluster("b1:9092", {}), OpenContext(), CAPABILITIES)


def table(**keys: Any) -> TableSpec:
    creation = TopicCreation(partitions=6, config={"cleanup.policy": "compact"})
    layout = Layout(topic=TopicLayout(create=creation))
    return any_table(**{"target": TargetRef("bus", ("orders",)), "layout": layout, **keys})


def info(columns: Sequence[Column] = ()) -> TableInfo:
    return TableInfo(ObjectName(("orders",)), tuple(columns), "kafka:c/t1", primary_key=("id",) if columns else ())


def step(spec: TableSpec, seen: Observed, state: TableState | None = None, **options: Any) -> Step:
    there = replace(world({spec.id: seen}, {spec.id: state} if state else None), ddl={"bus": TOPIC})
    return plan(there, spec, **options).steps[0]


def written(columns: Sequence[Column] = ORDERS, **keys: Any) -> dict[str, Any]:
    commit = committed(position=OLD, target_id="kafka:c/t1", **keys)
    return {"watermark": high(NEW), "target": info([replace(one, nullable=True) for one in columns]), "commit": commit}


def state_of(spec: TableSpec) -> TableState:
    return recorded(spec, OLD, target_id="kafka:c/t1", target_columns=info(ORDERS).columns)


def test_a_topic_that_is_not_there_is_created_by_its_statement() -> None:
    found = step(table(), Observed(source(), watermark=high(NEW)))
    assert isinstance(found, Load) and found.creates
    statement = "kafka-topics.sh --create --if-not-exists --topic orders --partitions 6 --config cleanup.policy=compact"
    assert found.columns.statements == (statement,)
    assert found.how == ("staged, keys are checked first", "exactly once: one Kafka transaction")


def test_without_create_it_must_exist() -> None:
    spec = table(layout=Layout())
    found = step(spec, Observed(source(), watermark=high(NEW)))
    assert isinstance(found, Stopped)
    assert (found.reason, found.hint) == (
        "there is no topic orders",
        "Create it, or let the run create it with `create: {}` in `to`",
    )
    there = step(spec, Observed(source(), watermark=high(NEW), unwritten=info()))
    assert isinstance(there, Load) and there.creates and there.columns.statements == ()


def test_it_is_not_what_the_table_reads() -> None:
    seen = Observed(source(identity="kafka:c/t1"), watermark=high(NEW), unwritten=info())
    found = step(table(), seen)
    assert isinstance(found, Stopped) and "are the same table" in found.reason


@pytest.mark.parametrize(
    ("columns", "kind", "action"),
    [
        ((ID, AMOUNT, Column("updated_at", types.TIMESTAMP)), types.Decimal(14, 4), "widen"),
        ((ID, AMOUNT, Column("updated_at", types.TIMESTAMP)), types.DATE, "fail"),
    ],
)
def test_a_wider_type_needs_no_statement_and_another_one_stops(
    columns: Sequence[Column], kind: DataType, action: str
) -> None:
    spec = table()
    seen = Observed(source((ID, replace(AMOUNT, type=kind), UPDATED_AT)), **written(columns))
    found = step(spec, seen, state_of(spec))
    changes = found.changes if isinstance(found, Stopped) else found.columns.changes
    assert [(one.column, one.action, one.statement) for one in changes] == [("amount", action, "")]


def test_a_key_keeps_its_type() -> None:
    spec = table()
    narrow = replace(ID, type=types.INT32)
    seen = Observed(source(), **written((narrow, AMOUNT, UPDATED_AT)))
    found = step(spec, seen, recorded(spec, OLD, target_id="kafka:c/t1", target_columns=info((narrow,)).columns))
    assert isinstance(found, Stopped)
    assert "it is part of the messages' key" in found.reason
    assert found.hint == "Keep its type with `columns: {types: …}`, or write to a new topic"


@pytest.mark.parametrize(
    ("recorded_as", "format", "registry", "way"),
    [
        (JSON_KEYS, "avro", True, "type: json"),
        (JSON_KEYS, "json", True, "type: json"),
        ({**JSON_KEYS, "schema": 7}, "json", False, "type: json, registry: true"),
        (JSON_KEYS, "json", False, ""),
        ({**JSON_KEYS, "format": "avro", "schema": 7}, "avro", True, ""),
        (None, "avro", True, ""),  # written before this was recorded
    ],
)
def test_a_key_keeps_its_encoding(
    recorded_as: dict[str, Any] | None, format: MessageFormat, registry: bool, way: str
) -> None:
    spec = table(layout=Layout(topic=TopicLayout(format, registry)))
    seen = written()
    seen["target"] = replace(seen["target"], extra={"partitions": 6, **({"keys": recorded_as} if recorded_as else {})})
    found = step(spec, Observed(source(), **seen), state_of(spec))
    assert (found.hint if isinstance(found, Stopped) else "") == (
        f"Set `format: {{{way}}}` in `to`, or write to a new topic" if way else ""
    )


def test_a_plan_says_that_keys_stay_in_the_partitions_of_before() -> None:
    spec, seen = table(), written()
    seen["target"] = replace(seen["target"], extra={"partitions": 12, "keys": JSON_KEYS})
    found = step(spec, Observed(source(), **seen), state_of(spec))
    assert isinstance(found, Load)
    assert found.how[-1].endswith("keys stay in the first 6 partitions of 12")


@pytest.mark.parametrize(
    ("keys", "hint"),
    [
        ({"target": TargetRef("bus", ("orders.v2",))}, "Send everything to bus:orders.v2 with `"),
        ({"where": "amount > 0"}, "Continue from here with `"),
        ({"key": ("id", "amount")}, "Continue from here with `"),
        ({"key": ("amount",)}, "Write to a new topic: it cannot continue from here: "),
    ],
)
def test_a_changed_definition_offers_no_full_refresh(keys: dict[str, Any], hint: str) -> None:
    found = step(table(**keys), Observed(source(), **written()), state_of(table()))
    assert isinstance(found, Stopped)
    assert found.hint.startswith(hint) and "--full-refresh" not in found.hint
    assert ("--accept-definition`" in found.hint) == ("cannot continue" not in hint)


def test_another_target_than_state_has_offers_no_full_refresh() -> None:
    spec = table()
    found = step(spec, Observed(source(), **written()), replace(state_of(spec), seq=7))
    assert isinstance(found, Stopped)
    assert "state adopt" in found.hint and "--full-refresh" not in found.hint


@pytest.mark.parametrize(("name", "path"), [("key", "to.key"), ("headers", "to.headers")])
def test_columns_of_keys_and_headers_exist(name: str, path: str) -> None:
    layout = Layout(topic=TopicLayout(create=TopicCreation(), **{name: ("amuont",)}))
    found = step(table(mode="append", key=(), layout=layout), Observed(source(), watermark=high(NEW)))
    assert isinstance(found, Stopped)
    assert found.reason == f'{path}: "amuont" is not a column of bus:orders'
    assert "amount" in found.hint
