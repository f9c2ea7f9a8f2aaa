"""Texts as decimals, exactly.

Executors run this without flowctl, as they do ``csv_text``: it may use only pyarrow and the standard library.
"""

from __future__ import annotations

import decimal
import re
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

_NUMBER = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def decimals(texts: pa.Array, kind: pa.Decimal128Type) -> pa.Array:
    """``texts`` as ``kind``. Raises ``ArrowInvalid`` for one that is no number, or not exactly of the type.

    Arrow (pyarrow 26) converts what is written with the digits of the type. Others overflow there without an error:
    with a scale of 38, '4' becomes 0.597…, and 1e-77 becomes 0.
    """
    is_usual = pc.match_substring_regex(texts, _usual(kind.precision - kind.scale, kind.scale))
    if pc.all(is_usual, min_count=0).as_py():
        return texts.cast(kind)
    others = pc.fill_null(pc.invert(is_usual), False)
    usual = pc.if_else(others, pa.scalar(None, texts.type), texts).cast(kind)
    found = [_exact(text, kind) for text in texts.filter(others).to_pylist()]
    return pc.replace_with_mask(usual, others, pa.array(found, kind))


def _usual(whole: int, scale: int) -> str:
    """A regular expression for numbers with at most so many digits before and after the point."""
    before = f"[0-9]{{1,{whole}}}" if whole else "0"
    return rf"^[+-]?{before}(\.[0-9]{{1,{scale}}})?$" if scale else f"^[+-]?{before}$"


def _exact(text: Any, kind: pa.Decimal128Type) -> decimal.Decimal:
    if _NUMBER.fullmatch(text):
        with suppress(decimal.InvalidOperation):  # it has more digits
            number = decimal.Decimal(text)
            step = decimal.Decimal(1).scaleb(-kind.scale)
            fixed = number.quantize(step, context=decimal.Context(kind.precision))
            if fixed == number:
                return fixed
    raise pa.ArrowInvalid(f"{text!r} is not exactly {kind}")
