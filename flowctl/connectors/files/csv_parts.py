"""What executors run to read CSV, which :mod:`flowctl.connectors.csv_text` parses. A value that is not exactly of its
type is refused with its file and line.

Pickled by value, as :mod:`flowctl.connectors.files.parts` is.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from flowctl.connectors.csv_text import CsvText, Field
from flowctl.connectors.files.text_parts import TextReader


@dataclass(frozen=True, kw_only=True)
class CsvReader(TextReader):
    """With ``multiline`` in ``text``, a row may have several lines."""

    text: CsvText
    has_header: bool

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.text.fields

    def is_closed(self, block: bytes) -> bool:
        return self.text.is_closed(block)

    def records(self, block: bytes) -> list[bytes]:
        return self.text.records(block)

    def is_blank(self, record: bytes, fields: tuple[Field, ...]) -> bool:
        """As :meth:`CsvText.texts` skips it. Of one column, spaces are a value."""
        line = record.decode(errors="replace").strip("\r\n")
        return not line or (not line.strip() and self.text.delimiter not in line and len(fields) > 1)

    @property
    def begins_with_header(self) -> bool:
        return self.has_header

    def parsed(self, block: bytes, fields: tuple[Field, ...], *, is_first: bool) -> pa.RecordBatch:
        text = self.text if fields is self.text.fields else replace(self.text, fields=fields)
        return text.parsed(block, is_first=is_first, has_header=self.has_header)
