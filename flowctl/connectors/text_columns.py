"""Columns of text that a spec reads as another type, for sources whose rows this process converts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowctl.connectors.arrow import arrow_type
from flowctl.connectors.exact import text_shape
from flowctl.model.types import DataType

if TYPE_CHECKING:
    import pyarrow as pa


def from_text(texts: pa.Array, kind: DataType) -> pa.Array:
    """``texts`` as a scalar ``kind``, by the rules for text files: Arrow alone takes 0x1F for an integer and 1e999 for
    infinity. Raises ``ArrowInvalid`` for a text that is not exactly of the type."""
    import pyarrow as pa

    from flowctl.connectors.csv_text import Field, Misfit, converted

    try:
        return converted(texts, Field("", arrow_type(kind), text_shape(kind), ""))
    except Misfit as error:
        raise pa.ArrowInvalid(f"a text is not exactly {kind}") from error
