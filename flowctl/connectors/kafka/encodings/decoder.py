"""What decodes the values of messages, or their keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from flowctl.connectors.kafka.envelopes import fields_of, is_truncation, unavailable_field
from flowctl.connectors.kafka.unfit import NO_KEY, TRUNCATE, Unfit, not_change, unavailable
from flowctl.model.table_info import Column

if TYPE_CHECKING:
    import pyarrow as pa


class Decoder(Protocol):
    def decoded(self, values: Sequence[bytes | None], columns: Sequence[Column]) -> list[pa.Array]:
        """One array per column, of the declared types. A field that is missing is null, and so is all of a tombstone;
        other fields are ignored. Raises :class:`~.unfit.Refused` with the numbers of values that do not fit, or
        ``pyarrow.ArrowInvalid`` if it cannot tell which."""

    def unfit(
        self, value: bytes | None, columns: Sequence[Column], envelope: str = "", key: Sequence[str] = ()
    ) -> Unfit | None:
        """Why a value certainly does not fit. None: it may fit."""


def unfit_row(row: Mapping[str, Any], columns: Sequence[Column], envelope: str, key: Sequence[str]) -> Unfit | None:
    """Why a value that was parsed is no change of a row; whatever the types of its fields."""
    if not envelope and not key:
        return None
    if is_truncation(row, envelope):
        return TRUNCATE
    fields = fields_of(row, envelope)
    if fields is None:
        return not_change(envelope)
    if fields and any(fields.get(column.name) is None for column in columns if column.name in key):
        return NO_KEY
    unsent = unavailable_field(row, envelope, columns)
    return unavailable(unsent) if unsent else None
