"""Changes of rows as Debezium and Maxwell write them, by the examples of their documentations."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flowctl.connectors.kafka.encodings.json import JsonDecoder
from flowctl.connectors.kafka.envelopes import rows_of
from flowctl.model import types
from flowctl.model.table_info import Column

JSON = JsonDecoder()
ANNE = {"id": 1004, "first_name": "Anne", "last_name": "Kretchmar", "email": "annek@noanswer.org"}
MARIE = {**ANNE, "first_name": "Anne Marie"}
CUSTOMERS = [Column("id", types.INT64), Column("first_name", types.STRING), Column("email", types.STRING)]
#: `create table test.e (id int not null primary key, m double, c timestamp(6), comment varchar(255))`
LIGHT = {"id": 1, "m": 4.2341, "c": "2016-10-21 05:33:37.523000", "comment": "I am a creature of light."}
E = [Column("id", types.INT64), Column("m", types.DOUBLE), Column("c", types.TIMESTAMP_NTZ)]


def debezium(op: str, before: Any, after: Any, *, schema: bool) -> bytes:
    source = {"connector": "mysql", "name": "mysql-server-1", "db": "inventory", "table": "customers", "pos": 154}
    change = {"before": before, "after": after, "source": source, "op": op, "ts_ms": 1465581902461}
    fields = [{"type": "struct", "fields": [{"type": "int32", "optional": False, "field": "id"}], "field": "after"}]
    envelope = {"type": "struct", "fields": fields, "name": "mysql-server-1.inventory.customers.Envelope"}
    return json.dumps({"schema": envelope, "payload": change} if schema else change).encode()


def maxwell(kind: str, data: Any, old: Any = None) -> bytes:
    more = {"data": data, **({"old": old} if old is not None else {})}
    return json.dumps({"database": "test", "table": "e", "type": kind, "ts": 1477053217, "xid": 23396, **more}).encode()


def error_of(value: bytes, envelope: str) -> str | None:
    unfit = JSON.unfit(value, CUSTOMERS, envelope)
    return unfit.error if unfit else None


def found(values: list[bytes | None], columns: list[Column], envelope: str, *key: str) -> list[tuple[Any, ...]]:
    """The number of each row's message, its operation, and its fields."""
    rows = rows_of(values, columns, JSON.decoded, envelope, key)
    assert rows.numbers is not None
    arrays = (rows.numbers, rows.operations, *rows.fields)
    return list(zip(*(array.to_pylist() for array in arrays), strict=True))


@pytest.mark.parametrize("schema", [True, False])
def test_debeziums_events(schema: bool) -> None:
    values = [
        debezium("r", None, ANNE, schema=schema),
        debezium("c", None, ANNE, schema=schema),
        debezium("u", ANNE, MARIE, schema=schema),
        debezium("d", MARIE, None, schema=schema),
        None,
        debezium("m", None, None, schema=schema),
    ]
    anne, marie = (1004, "Anne", ANNE["email"]), (1004, "Anne Marie", ANNE["email"])
    wanted = [(0, "I", *anne), (1, "I", *anne), (2, "U", *marie), (3, "D", *marie)]
    assert found(values, CUSTOMERS, "debezium", "id") == wanted
    assert all(JSON.unfit(value, CUSTOMERS, "debezium") is None for value in values)


def test_both_forms_of_debezium_in_one_batch() -> None:
    values = [debezium("c", None, {"id": at}, schema=at % 2 == 0) for at in range(4)]
    assert found(values, CUSTOMERS[:1], "debezium", "id") == [(at, "I", at) for at in range(4)]


@pytest.mark.parametrize("schema", [True, False])
def test_a_truncated_table_is_no_change_of_a_row(schema: bool) -> None:
    value = debezium("t", None, None, schema=schema)
    with pytest.raises(ValueError):
        rows_of([value], CUSTOMERS, JSON.decoded, "debezium")
    assert error_of(value, "debezium") == "truncate"


def test_maxwells_messages() -> None:
    new = {**LIGHT, "m": 5.444, "c": "2016-10-21 05:33:54.631000"}
    values = [
        maxwell("bootstrap-start", {}),
        maxwell("bootstrap-insert", LIGHT),
        maxwell("insert", LIGHT),
        maxwell("update", new, {"m": 4.2341, "c": LIGHT["c"]}),
        maxwell("delete", new),
        b'{"type":"table-alter","database":"test","table":"e","old":{"columns":[]},"def":{},"ts":1477053308000,"sql":""}',
    ]
    rows = found(values, E, "maxwell", "id")
    assert [(at, operation, id, m) for at, operation, id, m, _ in rows] == [
        (1, "I", 1, 4.2341),
        (2, "I", 1, 4.2341),
        (3, "U", 1, 5.444),
        (4, "D", 1, 5.444),
    ]
    assert str(rows[2][4]) == "2016-10-21 05:33:54.631000"
    assert all(JSON.unfit(value, E, "maxwell") is None for value in values)


def test_a_key_that_maxwell_saw_change_deletes_the_old_row() -> None:
    values = [maxwell("update", {"id": 5, "m": 1.0}, {"id": 1}), maxwell("update", {"id": 6, "m": 2.0}, {"m": 9.0})]
    assert found(values, E[:2], "maxwell", "id") == [(0, "D", 1, None), (0, "U", 5, 1.0), (1, "U", 6, 2.0)]
    both = [Column("a", types.INT64), Column("b", types.STRING)]
    moved = maxwell("update", {"a": 1, "b": "y"}, {"b": "x"})
    assert found([moved], both, "maxwell", "a", "b") == [(0, "D", 1, "x"), (0, "U", 1, "y")]
    assert found([moved], both, "maxwell") == [(0, "U", 1, "y")]


@pytest.mark.parametrize(
    ("envelope", "value"),
    [
        ("debezium", b"{}"),
        ("debezium", b'{"op": "x", "after": {"id": 1}}'),
        ("debezium", b'{"op": "c", "after": null}'),
        ("debezium", b'{"op": "d", "after": {"id": 1}}'),
        ("debezium", b'{"payload": null}'),
        ("maxwell", b"{}"),
        ("maxwell", b'{"type": "insert"}'),
        ("maxwell", b'{"type": "merge", "data": {"id": 1}}'),
    ],
)
def test_what_is_no_change_of_a_row(envelope: str, value: bytes) -> None:
    good = debezium("c", None, ANNE, schema=False) if envelope == "debezium" else maxwell("insert", ANNE)
    with pytest.raises(ValueError):
        rows_of([good, value], CUSTOMERS, JSON.decoded, envelope)
    assert error_of(value, envelope) == "not_change"


@pytest.mark.parametrize("envelope", ["debezium", "maxwell"])
def test_a_field_of_another_type(envelope: str) -> None:
    row = {"id": "1004"}
    value = debezium("c", None, row, schema=True) if envelope == "debezium" else maxwell("insert", row)
    with pytest.raises(ValueError):
        rows_of([value], CUSTOMERS, JSON.decoded, envelope)


@pytest.mark.parametrize("envelope", ["debezium", "maxwell"])
def test_a_tombstone_alone_has_no_row(envelope: str) -> None:
    assert found([None], CUSTOMERS, envelope, "id") == []


@pytest.mark.parametrize("value", ["__debezium_unavailable_value", ["a", "__debezium_unavailable_value"]])
def test_a_value_that_debezium_does_not_tell_is_not_taken_for_one(value: Any) -> None:
    kind = types.STRING if isinstance(value, str) else types.Array(types.STRING)
    columns = [Column("id", types.INT64), Column("note", kind)]
    good, bad = debezium("c", None, {"id": 1}, schema=False), debezium("u", None, {"id": 1, "note": value}, schema=True)
    with pytest.raises(ValueError):
        rows_of([good, bad], columns, JSON.decoded, "debezium")
    unfit = JSON.unfit(bad, columns, "debezium")
    assert unfit is not None
    assert (unfit.error, "value of note" in unfit.reason) == ("unavailable", True)
    assert rows_of([bad], columns[:1], JSON.decoded, "debezium").fields[0].to_pylist() == [1]
    deleted = debezium("d", {"id": 1, "note": value}, None, schema=False)
    assert found([deleted], columns, "debezium", "id") == [(0, "D", 1, value)]
