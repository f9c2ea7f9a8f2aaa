"""The dialect of CSV that a spec describes, in files and in messages."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Csv:
    """What the spec sets, or the usual. ``escape`` precedes quotes within quotes."""

    header: bool = True
    delimiter: str = ","
    quote: str = '"'
    escape: str = '"'
    null_value: str = ""
    encoding: str = "UTF-8"
    multiline: bool = False


def dialect_of(options: Mapping[str, Any]) -> Csv:
    """From the keys of `format`; without `escape`, quotes are doubled."""
    given = {name: value for name, value in options.items() if name in Csv.__dataclass_fields__}
    return Csv(**{"escape": given.get("quote", Csv.quote), **given})
