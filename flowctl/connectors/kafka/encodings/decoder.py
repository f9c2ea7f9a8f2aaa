"""What decodes the values of messages, or their keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from flowctl.connectors.kafka.envelopes import fields_of, unavailable_field
from flowctl.connectors.kafka.unfit import NO_KEY, Unfit, Unreadable, not_change, unavailable
from flowctl.model.table_info import Column

if TYPE_CHECKING:
    import pyarrow as pa


Read = TypeVar("Read")


class Decoder(Protocol):
    def decoded(self, values: Sequence[bytes | None], columns: Sequence[Column]) -> list[pa.Array]:
        """One array per column, of the declared types. A field that is missing is null, and so is all of a tombstone;
        other fields are ignored. Raises :class:`~.unfit.Refused` with the numbers of values that do not fit, or
        ``pyarrow.ArrowInvalid`` if it cannot tell which."""

    def unfit(
        self, value: bytes | None, columns: Sequence[Column], envelope: str = "", key: Sequence[str] = ()
    ) -> Unfit | None:
        """Why a value certainly does not fit. None: it may fit."""


def read_each(
    values: Sequence[bytes | None], read: Callable[[bytes], Read]
) -> tuple[list[Read | None], dict[int, Unfit]]:
    """What ``read`` makes of the values that it can read, in order, None for a tombstone; and why it cannot read the
    others, by their numbers: those for which it raises :class:`~.unfit.Unreadable`."""
    made: list[Read | None] = []
    refused: dict[int, Unfit] = {}
    for at, value in enumerate(values):
        try:
            made.append(None if value is None else read(value))
        except Unreadable as error:
            refused[at] = error.why
    return made, refused


def unfit_row(row: Mapping[str, Any], columns: Sequence[Column], envelope: str, key: Sequence[str]) -> Unfit | None:
    """Why a value that was parsed is no change of a row; whatever the types of its fields."""
    if not envelope and not key:
        return None
    fields = fields_of(row, envelope)
    if fields is None:
        return not_change(envelope)
    if fields and any(fields.get(column.name) is None for column in columns if column.name in key):
        return NO_KEY
    unsent = unavailable_field(row, envelope, columns)
    return unavailable(unsent) if unsent else None
