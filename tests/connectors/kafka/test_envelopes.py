"""Changes of rows as Debezium and Maxwell write them, by the examples of their documentations."""

from __future__ import annotations

import json
from typing import Any

import pytest

from flowctl.connectors.kafka.encodings.json import JsonDecoder
from flowctl.connectors.kafka.envelopes import rows_of
from flowctl.connectors.kafka.unfit import Refused
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
def test_a_truncate_has_an_order_and_no_row(schema: bool) -> None:
    """Also without the states, which Debezium's connectors leave out of it."""
    place = {"connector": "postgresql", "lsn": 7}
    alone: dict[str, Any] = {"op": "t", "source": place}
    values = [
        of_source({**place, "lsn": 6}, schema=schema),
        json.dumps({"payload": alone} if schema else alone).encode(),
        json.dumps({"op": "t", "before": None, "after": None, "source": {**place, "lsn": 8}}).encode(),
    ]
    assert found(values, CUSTOMERS[:1], "debezium", "id") == [(0, "U", 1), (1, "T", None), (2, "T", None)]
    assert orders(values, "debezium") == [f"{lsn:020}.{lsn:020}" for lsn in (6, 7, 8)]
    assert all(JSON.unfit(value, CUSTOMERS, "debezium", ["id"]) is None for value in values)
    skipped = rows_of(values, CUSTOMERS[:1], JSON.decoded, "debezium", ("id",), truncates=False)
    assert skipped.operations.to_pylist() == ["U"]


def test_a_truncate_without_an_order_does_not_fit() -> None:
    with pytest.raises(Refused) as refused:
        orders([debezium("t", None, None, schema=False)], "debezium")
    assert [why.error if why else "" for why in refused.value.whys.values()] == ["no_order"]


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


#: What Debezium's connectors write as `source`, by the examples of their documentations, in the order of the changes.
SOURCES: dict[str, list[dict[str, Any]]] = {
    "postgresql": [{"lsn": 9, "txId": 555}, {"lsn": 24023128, "xmin": None}, {"lsn": 2**63 - 1}],
    "mysql": [
        {"file": "mysql-bin.000003", "pos": 484, "row": 0, "gtid": None},
        {"file": "mysql-bin.000003", "pos": 484, "row": 10},
        {"file": "mysql-bin.000003", "pos": 1484, "row": 0},
        {"file": "mysql-bin.1000000", "pos": 4, "row": 0},
    ],
    "mariadb": [{"file": "binlog.9", "pos": 4, "row": 2}, {"file": "binlog.10", "pos": 4, "row": 0}],
    "sqlserver": [
        {"commit_lsn": "00000027:00000758:0005", "change_lsn": None, "event_serial_no": None},
        {"commit_lsn": "00000027:00000758:0005", "change_lsn": "00000027:00000758:0003", "event_serial_no": 1},
        {"commit_lsn": "00000027:00000758:0005", "change_lsn": "00000027:00000758:0003", "event_serial_no": 2},
        {"commit_lsn": "00000027:00000758:000A", "change_lsn": "00000027:00000758:0001", "event_serial_no": 1},
        {"commit_lsn": "0000002a:00000001:0001", "change_lsn": "00000027:00000758:0003", "event_serial_no": 1},
    ],
    "db2": [
        {"commit_lsn": "00000000:00001e36:000000000004a1b4", "change_lsn": None},
        {"commit_lsn": "00000000:00001e36:000000000004a1b4", "change_lsn": "00000000:00000000:000000000446140f"},
        {"commit_lsn": "00000000:000102b5:000000000007bf55", "change_lsn": "00000000:00000000:0000000006f4b31f"},
    ],
    "oracle": [
        {"scn": "999999", "commit_scn": "2122189"},
        {"scn": "2122184", "rs_id": " 0x000113.00015c5c.0010 ", "ssn": 1},
        {"scn": "2122184", "rs_id": "0x000113.00015c5d.0010", "ssn": 0},
        {"scn": "18446744073709551615", "rs_id": None, "ssn": 0},
    ],
}


def orders(values: list[bytes | None], envelope: str) -> list[str]:
    found = rows_of(values, CUSTOMERS[:1], JSON.decoded, envelope, ("id",), ordered=True)
    assert found.orders is not None
    return [str(order) for order in found.orders.to_pylist()]


def of_source(source: Any, *, op: str = "u", schema: bool = True) -> bytes:
    states = {"before": {"id": 1}, "after": None} if op == "d" else {"before": None, "after": {"id": 1}}
    change = {**states, "op": op, "source": source}
    return json.dumps({"schema": {}, "payload": change} if schema else change).encode()


@pytest.mark.parametrize("schema", [True, False])
@pytest.mark.parametrize("connector", SOURCES)
def test_the_order_of_debeziums_changes_is_that_of_their_text(connector: str, schema: bool) -> None:
    values = [of_source({"connector": connector, **source}, schema=schema) for source in SOURCES[connector]]
    found = orders([*values, None], "debezium")
    assert found == sorted(set(found)), "each later than the one before"
    assert len({len(order) for order in found}) == 1


@pytest.mark.parametrize(
    "source",
    [
        None,
        {},
        {"connector": "vitess", "vgtid": "[]"},
        {"connector": "postgresql", "lsn": None},
        {"connector": "postgresql", "lsn": -1},
        {"connector": "mysql", "file": "mysql-bin", "pos": 4, "row": 0},
        {"connector": "mysql", "file": "mysql-bin.000003", "pos": 4},
        {"connector": "sqlserver", "commit_lsn": "x"},
        {"connector": "oracle", "scn": "1" * 21},
    ],
)
def test_a_change_without_an_order_does_not_fit(source: Any) -> None:
    fitting = of_source({"connector": "postgresql", "lsn": 5})
    with pytest.raises(Refused) as refused:
        orders([fitting, None, of_source(source, op="d"), fitting], "debezium")
    assert {at: why.error if why else "" for at, why in refused.value.whys.items()} == {2: "no_order"}


def test_a_row_of_a_snapshot_is_before_what_was_committed_after_it() -> None:
    """PostgreSQL: also if that was written before it, by a transaction that was open. What was committed before the
    snapshot is before it, whatever Debezium knows of the last commit."""
    sent: list[tuple[str, int, str | None]] = [
        ("u", 60, '["50","60"]'), ("u", 40, '["70","40"]'),
        ("r", 100, '["90","100"]'), ("u", 30, '["90","30"]'), ("u", 95, '["120","95"]'),
        ("r", 150, '[null,"150"]'), ("t", 160, '[null,"160"]'), ("u", 140, '["170","140"]'), ("u", 190, None),
    ]  # fmt: skip
    sources = [{"connector": "postgresql", "lsn": lsn, "sequence": sequence} for _, lsn, sequence in sent]
    values = [of_source(source, op=op) for source, (op, *_) in zip(sources, sent, strict=True)]
    found = orders([*values], "debezium")
    assert found == sorted(set(found))
    before = f"{60:020}"  # of a version of flowctl that took the lsn alone: its transaction committed at 70
    assert found[0] < before < found[1]


def test_the_order_of_maxwells_changes() -> None:
    """The last one of a transaction has no `xoffset`; a bootstrap is before everything."""

    def message(kind: str, position: str | None, **more: Any) -> bytes:
        return json.dumps({"type": kind, "position": position, **more, "data": {"id": 1}}).encode()

    found = orders(
        [
            message("bootstrap-insert", None),
            message("insert", "master.000006:800911", xid=1, xoffset=0),
            message("update", "master.000006:800911", xid=1, xoffset=1),
            message("update", "master.000006:800911", xid=1, commit=True),
            message("delete", "master.000006:1800911", xid=2, commit=True),
            message("insert", "master.000010:4", xid=3, xoffset=0),
        ],
        "maxwell",
    )
    assert found == sorted(set(found))
    for lacking in (message("insert", None, commit=True), message("insert", "master.000006:4")):
        with pytest.raises(Refused):
            orders([lacking], "maxwell")


def test_a_changed_key_has_one_order_for_both_rows() -> None:
    change = {"type": "update", "position": "b.000001:4", "xoffset": 7, "data": {"id": 2}, "old": {"id": 1}}
    (one, other) = orders([json.dumps(change).encode()], "maxwell")
    assert one == other
