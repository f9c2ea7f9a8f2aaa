"""The check `matches`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flowctl.expect.expectation import RowExpectation, literal, quoted


@dataclass(frozen=True, kw_only=True)
class Matches(RowExpectation):
    """The column's values match a regular expression as a whole."""

    key = "matches"
    schema = {"type": "string", "minLength": 1, "description": "Java regular expression for the whole value."}
    takes_column = True
    gaps = {"sail": "its regular expressions differ from Java's"}

    pattern: str

    @classmethod
    def fields(cls, argument: Any) -> Mapping[str, Any]:
        return {"pattern": argument}

    def holds(self) -> str:
        whole = rf"\A(?:{self.pattern})\z"  # RLIKE matches anywhere; \Z would allow a final line break
        return f"{quoted(self.column)} RLIKE {literal(whole)}"
