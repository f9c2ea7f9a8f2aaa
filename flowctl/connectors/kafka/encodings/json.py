"""Values that are JSON objects."""

from __future__ import annotations

import decimal
import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

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
        self._checked: Sequence[Column] = ()
        self._checks: list[tuple[Column, json_misfits.Check]] = []
        self._parse: Callable[[bytes], Any] | None = None

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
            row = self._parsed(value)
        except (json.JSONDecodeError, UnicodeDecodeError):
            return NOT_JSON
        except (ValueError, RecursionError, decimal.DecimalException):  # beyond this parser's limits
            return None
        if not isinstance(row, dict):
            return NOT_JSON
        if found := unfit_row(row, columns, envelope, key):
            return found
        if self._checked is not columns:  # the same for all messages of a read
            self._checked, self._checks = columns, json_misfits.checks_of(columns)
        wrong = json_misfits.misfit(fields_of(row, envelope) or {}, self._checks)
        return wrong_type(wrong, self._where) if wrong else None

    def _parsed(self, value: bytes) -> Any:
        """By a parser that takes a third of the time of Python's, which decides where the two do not agree."""
        import msgspec

        if self._parse is None:
            self._parse = msgspec.json.Decoder(float_hook=decimal.Decimal).decode
        try:
            return self._parse(value)
        except (ValueError, RecursionError, decimal.DecimalException):
            return json.loads(value.decode(), parse_float=decimal.Decimal)
