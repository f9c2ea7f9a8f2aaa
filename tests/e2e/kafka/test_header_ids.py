"""Messages whose schema is named in a header: as Apicurio's serializers write them, and beside those of others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from flowctl.connectors.kafka.encodings.protobuf import ProtobufSchema
from tests.e2e.flows import Flow
from tests.e2e.kafka.test_dead_letters import letters_of
from tests.e2e.kafka.test_schemas import ID, NAME, VALUE_PROTO, Orders, avro, encoded, write_flow
from tests.e2e.targets import TargetPlace, place
from tests.services import kafka, schemas
from tests.services.kafka_security import PASSWORD, USER, TokenServer, token_server


@pytest.fixture
def target(tmp_path: Path) -> TargetPlace:
    return place("sqlite", tmp_path)


@pytest.fixture
def flow(tmp_path: Path) -> Flow:
    return Flow(tmp_path, {"CLIENT_SECRET": PASSWORD})


@pytest.fixture
def orders(kafka_broker: str, schema_registry: str, topic: str) -> Orders:
    return Orders(kafka_broker, schema_registry, topic)


def number(value: int) -> bytes:
    return value.to_bytes(8, "big")


@pytest.mark.full
def test_ids_in_headers_and_in_messages(flow: Flow, target: TargetPlace, orders: Orders) -> None:
    """Each message is decoded with its own schema; what names none, or a wrong one, is a dead letter."""
    table = f"from: 'bus:{orders.topic}', mode: append, format: {{type: avro}}, dead_letters: {{}}"
    write_flow(flow, orders.address, orders.url, target, table)
    first, second, other = avro(ID), avro(ID, NAME), avro(ID, name="Line")
    schemas.register(orders.url, f"{orders.topic}-copy", first)  # from here on, global ids are not those of content
    one = orders.register(first)
    first_global = schemas.global_id(orders.url, f"{orders.topic}-value")
    two = orders.register(second)
    second_global = schemas.global_id(orders.url, f"{orders.topic}-value")
    schemas.register(orders.url, f"{orders.topic}-line", other)
    other_global = schemas.global_id(orders.url, f"{orders.topic}-line")
    assert first_global != one

    def send(value: bytes, **headers: int) -> None:
        named = {f"apicurio.value.{kind}": number(id) for kind, id in headers.items()}
        kafka.send(orders.address, orders.topic, [value], headers={"trace": b"x", **named})

    send(encoded(second, {"id": 1, "name": "a"}), globalId=second_global)
    send(encoded(first, {"id": 2}), globalId=first_global)
    send(encoded(first, {"id": 3}), contentId=one)
    send(schemas.framed(two, encoded(second, {"id": 4, "name": "d"})))
    send(encoded(first, {"id": 5}), globalId=2**40)
    send(encoded(other, {"id": 6}), globalId=other_global)
    send(b"\x02", globalId=second_global)
    send(encoded(first, {"id": 8}))
    flow.apply()
    assert target.rows(("id", "name")) == [(1, "a"), (2, None), (3, None), (4, "d")]
    wrong = [(4, "unknown_schema"), (5, "other_schema"), (6, "corrupt"), (7, "no_schema_id")]
    assert letters_of(target).rows(("_offset", "_error")) == wrong
    flow.run("dlq", "replay", "flow.yaml", "orders", "--yes", expect=0)
    flow.apply()  # with their headers, which the letters have kept
    assert letters_of(target).rows(("_offset", "_error")) == wrong
    assert f"the registry has no schema {2**40} (globalId)" in flow.run("dlq", "list", "flow.yaml", expect=0).words


@pytest.mark.full
@pytest.mark.parametrize("kind", ["globalId", pytest.param("contentId", marks=pytest.mark.full)])
def test_keys_with_ids_in_headers(flow: Flow, target: TargetPlace, orders: Orders, kind: str) -> None:
    table = f"from: 'bus:{orders.topic}', mode: merge, key: [id], format: {{type: avro, key: {{}}}}"
    write_flow(flow, orders.address, orders.url, target, table)
    value_schema, key_schema = avro(NAME), avro(ID, name="Key")
    ids = {"value": orders.register(value_schema)}
    ids["key"] = schemas.register(orders.url, f"{orders.topic}-key", key_schema)
    if kind == "globalId":
        ids = {role: schemas.global_id(orders.url, f"{orders.topic}-{role}") for role in ids}
    headers = {f"apicurio.{role}.{kind}": number(id) for role, id in ids.items()}

    def send(id: int, name: str | None) -> None:
        value = encoded(value_schema, {"name": name}) if name else None
        kafka.send(orders.address, orders.topic, [value], key=encoded(key_schema, {"id": id}), headers=headers)

    send(1, "a")
    send(2, "b")
    send(1, "c")
    send(2, None)
    flow.apply()
    assert target.rows(("id", "name")) == [(1, "c")]


@pytest.mark.full
def test_json_with_ids_in_headers(flow: Flow, target: TargetPlace, orders: Orders) -> None:
    table = f"from: 'bus:{orders.topic}', mode: append, format: {{type: json, registry: true}}"
    write_flow(flow, orders.address, orders.url, target, table)
    orders.register('{"type": "object", "properties": {"id": {"type": "integer"}}}', "JSON")
    id = schemas.global_id(orders.url, f"{orders.topic}-value")
    kafka.send(orders.address, orders.topic, [b'{"id": 1}'], headers={"apicurio.value.globalId": number(id)})
    flow.apply()
    assert target.rows(("id",)) == [(1,)]


TWO_PROTO = f"{VALUE_PROTO} message Line {{ message Order {{ string sku = 1; }} string sku = 1; }}"


@pytest.mark.full
@pytest.mark.parametrize("kind", ["globalId", pytest.param("contentId", marks=pytest.mark.full)])
def test_protobuf_with_ids_in_headers(flow: Flow, target: TargetPlace, orders: Orders, kind: str) -> None:
    """The name of the type is before the value, in a header, or both, as its producer is configured."""
    table = f"from: 'bus:{orders.topic}', mode: append, format: {{type: protobuf}}, dead_letters: {{}}"
    write_flow(flow, orders.address, orders.url, target, table)
    id = orders.register(TWO_PROTO, "PROTOBUF")
    if kind == "globalId":
        id = schemas.global_id(orders.url, f"{orders.topic}-value")
    written = ProtobufSchema(TWO_PROTO)._class

    def send(id_of_row: int, reference: bytes, type: str = "") -> None:
        value = reference + written(id=id_of_row, name="a").SerializeToString()
        more = {"apicurio.protobuf.type": type.encode()} if type else {}
        headers = {f"apicurio.value.{kind}": number(id), "apicurio.value.message.type": b"shop.Shop$Order", **more}
        kafka.send(orders.address, orders.topic, [value], headers=headers)

    send(1, b"\x07\x0a\x05Order", "Order")
    send(2, b"\x07\x0a\x05Order")
    send(3, b"", "Order")
    send(4, b"")
    send(5, b"\x06\x0a\x04Line", "Line")
    send(6, b"\x06\x0a\x04Gone", "Gone")
    send(7, b"\x07\x0a\x05Order\x00", "Order")  # with indexes behind the name
    flow.apply()
    assert target.rows(("id", "name")) == [(1, "a"), (2, "a"), (3, "a")]
    wrong = [(3, "other_schema"), (4, "other_schema"), (5, "other_schema"), (6, "corrupt")]
    assert letters_of(target).rows(("_offset", "_error")) == wrong
    listed = flow.run("dlq", "list", "flow.yaml", expect=0).words
    assert "2 other_schema a header of Apicurio has the id of its schema, but neither" in listed


@pytest.fixture
def tokens() -> Iterator[TokenServer]:
    with token_server() as made:
        yield made


@pytest.mark.full
def test_a_registry_that_takes_tokens(flow: Flow, target: TargetPlace, orders: Orders, tokens: TokenServer) -> None:
    """For both of its interfaces."""
    schema = avro(ID)
    orders.register(schema)
    id = schemas.global_id(orders.url, f"{orders.topic}-value")
    kafka.send(
        orders.address, orders.topic, [encoded(schema, {"id": 1})], headers={"apicurio.value.globalId": number(id)}
    )
    with schemas.gate(orders.url.partition("/apis/")[0], tokens=tokens) as url:
        url = f"{url}/apis/ccompat/v7"
        secret = '"${secret:env:CLIENT_SECRET}"'
        oauth = f'{{token_url: "{tokens.url}", client_id: {USER}, client_secret: {secret}}}'
        table = f'from: "bus:{orders.topic}", mode: append, format: {{type: avro}}'
        write_flow(flow, orders.address, url, target, table, oauth=oauth)
        flow.env["CLIENT_SECRET"] = "wrong-secret"
        for command in ("plan", "doctor"):
            refused = flow.run(command, "flow.yaml", expect=4)
            assert f"no token for {url}: invalid_client" in refused.words
            assert "wrong-secret" not in refused.words
        flow.env["CLIENT_SECRET"] = PASSWORD
        assert "a schema registry with" in flow.run("doctor", "flow.yaml", expect=0).words
        done = flow.apply()
    assert target.rows(("id",)) == [(1,)]
    assert not any(token in done.words for token in tokens.issued)
