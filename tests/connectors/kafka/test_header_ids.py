"""Headers that name the schema of a value or a key."""

from __future__ import annotations

import io
from uuid import UUID

import pytest
from google.protobuf.proto import serialize_length_prefixed
from google.protobuf.wrappers_pb2 import StringValue
from hypothesis import given
from hypothesis import strategies as st

from flowctl.connectors.kafka.schema_ids import HeaderId, Headers, NamedValue, Role, named_value, type_reference

GUID = UUID("89791762-2336-186f-9674-180f3d0d2c1f")
NUMBER = (7).to_bytes(8, "big")


@pytest.mark.parametrize(
    ("headers", "role", "id"),
    [
        ([("apicurio.value.globalId", NUMBER)], "value", HeaderId("globalId", 7)),
        ([("apicurio.value.contentId", NUMBER)], "value", HeaderId("contentId", 7)),
        ([("apicurio.key.globalId", NUMBER), ("trace", b"x")], "key", HeaderId("globalId", 7)),
        ([("__value_schema_id", b"\x01" + GUID.bytes)], "value", HeaderId("guid", str(GUID))),
        ([("__key_schema_id", b"\x01" + GUID.bytes)], "key", HeaderId("guid", str(GUID))),
        (
            [("apicurio.value.globalId", NUMBER), ("apicurio.value.globalId", bytes(8))],
            "value",
            HeaderId("globalId", 0),
        ),
        ([("apicurio.value.globalId", NUMBER), ("apicurio.value.globalId", b"7")], "value", HeaderId("globalId", 7)),
    ],
)
def test_ids_in_headers(headers: Headers, role: Role, id: HeaderId) -> None:
    found = named_value(b"data", headers, role)
    assert isinstance(found, NamedValue)
    assert (found.schema, found) == (id, b"data")


@pytest.mark.parametrize(
    "headers",
    [
        None,
        [],
        [("apicurio.key.globalId", NUMBER)],
        [("apicurio.value.globalId", None)],
        [("apicurio.value.globalId", b"7")],
        [("apicurio.value.encoding", b"BINARY")],
        [("__value_schema_id", b"\x00" + GUID.bytes)],
        [("__value_schema_id", b"\x01" + GUID.bytes[:15])],
    ],
)
def test_what_names_no_schema(headers: Headers | None) -> None:
    assert not isinstance(named_value(b"data", headers, "value"), NamedValue)


def test_a_tombstone_has_no_schema() -> None:
    assert named_value(None, [("apicurio.value.globalId", NUMBER)], "value") is None


@pytest.mark.parametrize("role", ["value", "key"])
def test_the_type_of_protobuf_comes_before_the_value(role: Role) -> None:
    """Whether it is only in a header, or, as is Apicurio's default, before the value, too."""
    name = "apicurio.protobuf.type" + (".key" if role == "key" else "")
    headers: Headers = [(f"apicurio.{role}.globalId", NUMBER), (name, b"Order")]
    assert named_value(b"data", headers, role) == b"\x07\x0a\x05Orderdata"
    assert named_value(b"\x07\x0a\x05Orderdata", headers, role) == b"\x07\x0a\x05Orderdata"
    assert named_value(b"\x07\x0a\x05Orderdata", headers[:1], role) == b"\x07\x0a\x05Orderdata"


@given(st.text(min_size=1, max_size=400))
def test_a_type_is_written_as_protobuf_writes_it(name: str) -> None:
    """Apicurio's `Ref` has a text as its field 1, as `StringValue` has."""
    written = io.BytesIO()
    serialize_length_prefixed(StringValue(value=name), written)
    assert type_reference(name.encode()) == written.getvalue()


def test_indexes_of_protobuf_come_before_the_value() -> None:
    found = named_value(b"data", [("__value_schema_id", b"\x01" + GUID.bytes + b"\x00")], "value")
    assert found == b"\x00data"
