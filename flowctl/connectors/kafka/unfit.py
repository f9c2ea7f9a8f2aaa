"""Why a message is not as declared, and what a user may do if it is to be read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from flowctl.connectors.kafka.schema_ids import SchemaId
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.text import counted

_APART = "keep such messages apart with `dead_letters: {}`"
#: How people write the envelopes.
NAMES = {"debezium": "Debezium", "maxwell": "Maxwell"}

Error = Literal[
    "not_json", "not_change", "wrong_type", "not_utf8", "no_key", "no_time", "no_order",
    "no_schema_id", "unknown_schema", "other_schema", "corrupt", "unavailable", "not_csv",
]  # fmt: skip


@dataclass(frozen=True)
class Unfit:
    """``reason`` is in words, and without any value of the message."""

    error: Error
    reason: str
    hint: str


class Unreadable(ValueError):
    """A value does not fit, and ``why``."""

    def __init__(self, why: Unfit) -> None:
        super().__init__(why.reason)
        self.why = why


class Refused(ValueError):
    """Of several values, those with these numbers do not fit, and maybe others; and why, as far as that is known."""

    def __init__(self, whys: Mapping[int, Unfit | None]) -> None:
        super().__init__(f"{len(whys)} values do not fit")
        self.whys = whys


NO_KEY = Unfit("no_key", "it has no key", f"Let its producer send one, or {_APART}")
NO_TIME = Unfit(
    "no_time", "it has no time of the years 1 to 9999", f"Let its producer send milliseconds since 1970, or {_APART}"
)
#: By envelope: it does not tell where in its source's log the change was made.
NO_ORDER = {
    "debezium": Unfit(
        "no_order",
        "its `source` does not tell the order of changes: lsn of PostgreSQL; file, pos and row of MySQL and MariaDB;"
        " commit_lsn of SQL Server and Db2; scn of Oracle",
        f"Remove `format.source_order`, or {_APART}",
    ),
    "maxwell": Unfit(
        "no_order",
        "it does not tell the order of changes: position and xoffset",
        f"Let Maxwell write them with `output_binlog_position=true` and `output_xoffset=true`, or {_APART}",
    ),
}
NOT_JSON = Unfit("not_json", "not one JSON object", f"Read all as `format: {{type: text}}`, or {_APART}")
NO_SCHEMA_ID = Unfit(
    "no_schema_id",
    "it does not begin with the id of a schema, and no header has one",
    f"Read messages that were written without the registry with `schema_file`, or {_APART}",
)

NO_MESSAGE = Unfit(
    "other_schema",
    "a header of Apicurio has the id of its schema, but neither a header nor the message names a type of that schema",
    f"Let its producer write the type's name, as Apicurio's serializers do, or {_APART}",
)


def unavailable(column: str) -> Unfit:
    return Unfit(
        "unavailable",
        f"Debezium does not tell the value of {column}, which PostgreSQL stores apart and the update left as it was",
        f"ALTER the source's table with REPLICA IDENTITY FULL, and move past this message, or {_APART}",
    )


def unknown_schema(id: SchemaId) -> Unfit:
    return Unfit(
        "unknown_schema",
        f"the registry has no schema {id}",
        f"Check `registry.url` against its producer's, or {_APART}",
    )


def other_schema(id: SchemaId, name: str, expected: str) -> Unfit:
    which = f"schema {id} is" if id else "it is"
    return Unfit(
        "other_schema",
        f"{which} of {name}, not of {expected}",
        f"Set `format.subject` or `format.message`, or {_APART}",
    )


def corrupt(id: SchemaId) -> Unfit:
    which = f"schema {id}" if id else "the schema"
    return Unfit("corrupt", f"its bytes are not a value of {which}", f"Check what writes to the topic, or {_APART}")


def not_utf8(column: Column) -> Unfit:
    way = "Read the messages as bytes with `format: {type: raw}`"
    if column.name == "_key":
        way = "Leave it out with `columns: {exclude: [_key]}`, read the messages as bytes"
    return Unfit("not_utf8", f"the {column.name.removeprefix('_')} is not UTF-8", f"{way}, or {_APART}")


def not_encoded(encoding: str) -> Unfit:
    return Unfit("not_utf8", f"the value is not {encoding}", f"Set `format.encoding`, or {_APART}")


def not_csv(fields: int) -> Unfit:
    what = f"not one record of CSV with {counted(fields, 'field')}"
    way = "Declare all fields in `format.schema`, in their order, or correct delimiter, quote or multiline"
    return Unfit("not_csv", what, f"{way}, or {_APART}")


def not_change(envelope: str) -> Unfit:
    name = NAMES[envelope]
    return Unfit(
        "not_change", f"no change of a row as {name} writes it", f"Check what writes to the topic, or {_APART}"
    )


def wrong_type(column: Column, where: str = "schema") -> Unfit:
    way = f"Declare another type in `format: {{{where}: {{{column.name}: string}}}}`, leave the field out"
    return Unfit("wrong_type", f"{column.name} is not exactly {types.short(column.type)}", f"{way}, or {_APART}")
