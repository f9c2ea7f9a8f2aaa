"""What a message says of a row: its fields, and whether it was inserted, updated or deleted; or that its table was
truncated.

Source of the forms: "Change event values" in the documentation of Debezium's connectors (with and without the schema
part), and "Reference" of Maxwell's. Debezium tells of a TRUNCATE if `skipped.operations` lets it (`t` is left out by
default), in a message without key, rows and tombstone; Maxwell ignores the statement (`SchemaChange` in its source).
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flowctl.connectors.kafka.source_order import (
    DEBEZIUM_SOURCE,
    MAXWELL_FIELDS,
    order_of_debezium,
    order_of_maxwell,
)
from flowctl.connectors.kafka.unfit import NO_ORDER, Refused
from flowctl.model import types
from flowctl.model.table_info import Column
from flowctl.model.types import DataType, Struct

if TYPE_CHECKING:
    import pyarrow as pa

Decode = Callable[[Sequence[bytes | None], Sequence[Column]], "list[pa.Array]"]
#: The operation of a message that says that its table was truncated.
TRUNCATE = "T"
#: What the operations of Debezium and Maxwell are in flowctl.
_DEBEZIUM = {"c": "I", "r": "I", "u": "U", "d": "D", "t": TRUNCATE}
_MAXWELL = {"insert": "I", "bootstrap-insert": "I", "update": "U", "delete": "D"}
#: What stands for a value of PostgreSQL that is stored apart (TOAST), if the update left it as it was; in JSON also for
#: bytes. Source: `unavailable.value.placeholder` in the documentation of Debezium's connector for PostgreSQL.
_UNAVAILABLE = ("__debezium_unavailable_value", base64.b64encode(b"__debezium_unavailable_value").decode())
#: What is no change of a row: messages of an application, a change of a table's definition.
_OTHERS = {"debezium": ("m",), "maxwell": ("bootstrap-", "table-", "database-")}


@dataclass(frozen=True)
class Rows:
    """One array of ``fields`` per column. ``operations`` are `I`, `U`, `D` or :data:`TRUNCATE`, whose fields are all
    null. ``numbers`` are those of the messages
    that the rows come from; None: one row for each message. ``moves``: some message has two rows, as it changes a key.
    ``orders``: see :mod:`.source_order`; None if it was not asked for."""

    fields: Sequence[pa.Array]
    operations: pa.Array
    numbers: pa.Array | None = None
    moves: bool = False
    orders: pa.Array | None = None


def rows_of(
    values: Sequence[bytes | None],
    columns: Sequence[Column],
    decode: Decode,
    envelope: str = "",
    key: Sequence[str] = (),
    *,
    ordered: bool = False,
    truncates: bool = True,
) -> Rows:
    """``decode`` as :meth:`.encodings.decoder.Decoder.decoded`. Raises ``ValueError`` if a message does not fit. With a
    ``key``, a change of it also deletes the old row. ``ordered``: each must tell its order in the source. Without
    ``truncates``, they are passed over."""
    match envelope:
        case "debezium":
            return _of_debezium(values, columns, decode, ordered=ordered, truncates=truncates)
        case "maxwell":
            return _of_maxwell(values, columns, decode, key, ordered=ordered)
        case _:
            return Rows(decode(values, columns), operations_of(values))


def operations_of(values: Sequence[bytes | None]) -> pa.Array:
    """Of messages without an envelope: a tombstone deletes."""
    import pyarrow as pa

    return pa.array(["D" if value is None else "U" for value in values], pa.string())


def fields_of(found: Mapping[str, Any], envelope: str) -> Mapping[str, Any] | None:
    """The fields in a message that was parsed; empty if it is no change of a row, None if it is no such envelope."""
    match envelope:
        case "debezium":
            change = _change(found)
            operation, state = change.get("op"), change.get("before" if change.get("op") == "d" else "after")
            if operation in ("t", *_OTHERS["debezium"]):
                return {}
            return state if operation in _DEBEZIUM and isinstance(state, dict) else None
        case "maxwell":
            operation, state = found.get("type"), found.get("data")
            if not isinstance(operation, str):
                return None
            if operation not in _MAXWELL:
                return {} if operation.startswith(_OTHERS["maxwell"]) else None
            return state if isinstance(state, dict) else None
        case _:
            return found


def unavailable_field(found: Mapping[str, Any], envelope: str, columns: Sequence[Column]) -> str:
    """The first of ``columns`` whose value an update does not tell; empty: it tells all."""
    change = _change(found)
    if envelope != "debezium" or change.get("op") == "d":
        return ""
    fields = change.get("after") or {}
    return next((column.name for column in columns if _is_unavailable(fields.get(column.name))), "")


def _is_unavailable(value: Any) -> bool:
    whole = value if isinstance(value, list) else [value]
    return any(one == stand_in or one == stand_in.encode() for one in whole for stand_in in _UNAVAILABLE)


def _lacks_value(field: pa.Array) -> bool:
    """Whether one of the values stands for one that is not told; a list of it, too."""
    import pyarrow as pa
    import pyarrow.compute as pc

    items = field.flatten() if pa.types.is_list(field.type) else field
    if not (pa.types.is_string(items.type) or pa.types.is_binary(items.type)):
        return False
    return bool(pc.any(pc.is_in(items, pa.array(_UNAVAILABLE).cast(items.type))).as_py())


def _change(found: Mapping[str, Any]) -> Mapping[str, Any]:
    """What Debezium wrote, without the schema part around it."""
    inner = found.get("payload")
    return inner if isinstance(inner, dict) else found


def _of_debezium(
    values: Sequence[bytes | None], columns: Sequence[Column], decode: Decode, *, ordered: bool, truncates: bool
) -> Rows:
    import pyarrow as pa
    import pyarrow.compute as pc

    state = _state(columns)
    change: tuple[tuple[str, DataType], ...] = (("before", state), ("after", state), ("op", types.STRING))
    change += (("source", DEBEZIUM_SOURCE),) if ordered else ()
    parsed = [Column("payload", Struct(change)), *(Column(name, kind) for name, kind in change)]
    inner, *outer = decode(values, parsed)
    has_schema = inner.is_valid()
    before, after, operation, *source = (
        pc.if_else(has_schema, pc.struct_field(inner, name), whole)
        for (name, _), whole in zip(change, outer, strict=True)
    )
    numbers = _kept(values, operation, _DEBEZIUM, _OTHERS["debezium"])
    if not truncates:
        numbers = numbers.filter(pc.not_equal(operation.take(numbers), "t"))
    operation = operation.take(numbers)
    found = pc.if_else(pc.equal(operation, "d"), before.take(numbers), after.take(numbers))
    if found.null_count and found.filter(pc.not_equal(operation, "t")).null_count:
        raise pa.ArrowInvalid("a change has no row")
    fields, operations = _fields(found, columns), _translated(operation, _DEBEZIUM)
    if any(_lacks_value(field.filter(pc.not_equal(operations, "D"))) for field in fields):
        raise pa.ArrowInvalid("a change does not tell a value")
    orders = _required(order_of_debezium(source[0].take(numbers), operation), numbers, "debezium") if ordered else None
    return Rows(fields, operations, numbers, orders=orders)


def _of_maxwell(
    values: Sequence[bytes | None], columns: Sequence[Column], decode: Decode, key: Sequence[str], *, ordered: bool
) -> Rows:
    import pyarrow as pa
    import pyarrow.compute as pc

    keys = [column for column in columns if column.name in key]
    parsed = [Column("data", _state(columns)), Column("type", types.STRING)]
    parsed += [Column("old", _state(keys))] if keys else []
    parsed += MAXWELL_FIELDS if ordered else []
    data, operation, *more = decode(values, parsed)
    old = more[: len(keys) and 1]
    numbers = _kept(values, operation, _MAXWELL, _OTHERS["maxwell"])
    operation, data = operation.take(numbers), data.take(numbers)
    if data.null_count:
        raise pa.ArrowInvalid("a change has no row")
    fields, operations, orders = _fields(data, columns), _translated(operation, _MAXWELL), None
    if ordered:
        position, xoffset, commit = (array.take(numbers) for array in more[len(old) :])
        orders = _required(order_of_maxwell(position, xoffset, commit, operation), numbers, "maxwell")
    if not old:
        return Rows(fields, operations, numbers, orders=orders)
    before = dict(zip([column.name for column in keys], _fields(old[0].take(numbers), keys), strict=True))
    moved = pc.equal(operations, "U")
    is_other = pa.array([False] * len(numbers), pa.bool_())
    for values_before in before.values():
        is_other = pc.or_(is_other, values_before.is_valid())
    left = pc.indices_nonzero(pc.and_(moved, is_other))
    if not len(left):
        return Rows(fields, operations, numbers, orders=orders)
    gone = [
        pc.coalesce(before[column.name], field).take(left) if column.name in before else pa.nulls(len(left), field.type)
        for column, field in zip(columns, fields, strict=True)
    ]
    deletions = pa.array(["D"] * len(left), pa.string())
    return Rows(
        [pa.concat_arrays(both) for both in zip(gone, fields, strict=True)],
        pa.concat_arrays([deletions, operations]),
        pa.concat_arrays([numbers.take(left), numbers]),
        moves=True,
        orders=None if orders is None else pa.concat_arrays([orders.take(left), orders]),
    )


def _state(columns: Sequence[Column]) -> Struct:
    return Struct(tuple((column.name, column.type) for column in columns))


def _fields(rows: pa.Array, columns: Sequence[Column]) -> list[pa.Array]:
    import pyarrow.compute as pc

    return [pc.struct_field(rows, [at]) for at in range(len(columns))]


def _required(orders: pa.Array, numbers: pa.Array, envelope: str) -> pa.Array:
    """Raises :class:`~.unfit.Refused` for messages without an order."""
    if orders.null_count:
        raise Refused(dict.fromkeys(numbers.filter(orders.is_null()).to_pylist(), NO_ORDER[envelope]))
    return orders


def _kept(
    values: Sequence[bytes | None], operation: pa.Array, known: Mapping[str, str], others: tuple[str, ...]
) -> pa.Array:
    """The numbers of the messages that are changes of a row. A tombstone follows a deletion, and says nothing more."""
    import pyarrow as pa

    numbers = []
    for at, (value, name) in enumerate(zip(values, operation.to_pylist(), strict=True)):
        if name in known:
            numbers.append(at)
        elif value is not None and not (name or "").startswith(others):
            raise pa.ArrowInvalid("a message is no change of a row")
    return pa.array(numbers, pa.int64())


def _translated(operation: pa.Array, known: Mapping[str, str]) -> pa.Array:
    import pyarrow as pa

    return pa.array([known[name] for name in operation.to_pylist()], pa.string())
