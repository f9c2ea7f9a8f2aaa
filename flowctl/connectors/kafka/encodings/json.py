"""Values that are JSON objects."""

from __future__ import annotations

import decimal
import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from flowctl.connectors.kafka.encodings import json_misfits, json_values
from flowctl.connectors.kafka.encodings.decoder import unfit_row
from flowctl.connectors.kafka.envelopes import fields_of
from flowctl.connectors.kafka.unfit import NOT_JSON, Unfit, wrong_type
from flowctl.model.table_info import Column

if TYPE_CHECKING:
    import pyarrow as pa


class JsonDecoder:
    def __init__(self, where: str = "schema") -> None:
        """``where`` is the part of `format` that declares the fields."""
        self._where = where

    def decoded(self, values: Sequence[bytes | None], columns: Sequence[Column]) -> list[pa.Array]:
        return json_values.decoded(values, columns)

    def refused(self, error: ValueError) -> int | None:
        return json_values.refused_message(error)

    def unfit(
        self, value: bytes | None, columns: Sequence[Column], envelope: str = "", key: Sequence[str] = ()
    ) -> Unfit | None:
        """By Python's own parser: never stricter than what decodes them."""
        if value is None:
            return None
        try:
            row = json.loads(value.decode(), parse_float=decimal.Decimal)
        except (json.JSONDecodeError, UnicodeDecodeError):
            return NOT_JSON
        except (ValueError, RecursionError, decimal.DecimalException):  # beyond this parser's limits
            return None
        if not isinstance(row, dict):
            return NOT_JSON
        if found := unfit_row(row, columns, envelope, key):
            return found
        wrong = json_misfits.misfit(fields_of(row, envelope) or {}, columns)
        return wrong_type(wrong, self._where) if wrong else None
