"""Headers that name the schema of a value or a key."""

from __future__ import annotations

from uuid import UUID

import pytest

from flowctl.connectors.kafka.schema_ids import HeaderId, Headers, NamedValue, Role, named_value

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


def test_indexes_of_protobuf_come_before_the_value() -> None:
    found = named_value(b"data", [("__value_schema_id", b"\x01" + GUID.bytes + b"\x00")], "value")
    assert found == b"\x00data"
