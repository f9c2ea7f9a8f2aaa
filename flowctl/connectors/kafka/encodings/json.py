"""Values that are JSON objects."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

from flowctl.connectors.kafka.encodings import json_values
from flowctl.connectors.kafka.encodings.decoder import unfit_row
from flowctl.connectors.kafka.unfit import NOT_JSON, Unfit
from flowctl.model.table_info import Column

if TYPE_CHECKING:
    import pyarrow as pa


class JsonDecoder:
    def decoded(self, values: Sequence[bytes | None], columns: Sequence[Column]) -> list[pa.Array]:
        return json_values.decoded(values, columns)

    def unfit(
        self, value: bytes | None, columns: Sequence[Column], envelope: str = "", key: Sequence[str] = ()
    ) -> Unfit | None:
        import msgspec

        if value is None:
            return None
        try:
            row = _parser()(value)
            value.decode()
        except (msgspec.ValidationError, RecursionError):
            return None  # a number or a nesting for which this way of parsing has no room
        except ValueError:
            return NOT_JSON
        if not isinstance(row, dict):
            return NOT_JSON
        return unfit_row(row, columns, envelope, key)


@cache
def _parser() -> Any:
    import msgspec

    return msgspec.json.Decoder(float_hook=str).decode  # a number may be beyond Python's floats
