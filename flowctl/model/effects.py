"""What a run would change in a table, as computed by `plan --effects`. A plan may include it; `apply` ignores it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from flowctl.model.codec import from_json, has_form, in_json

Action = Literal["insert", "update", "delete"]


@dataclass(frozen=True)
class SampleRow:
    """One row that would change. Values are text; None is null. ``before`` and ``after`` hold the non-key columns: only
    the changed ones for an update, all of them for an insert or delete. Both are None if values were not requested."""

    action: Action
    key: Mapping[str, str | None]
    before: Mapping[str, str | None] | None = field(default=None, metadata=in_json("not_default"))
    after: Mapping[str, str | None] | None = field(default=None, metadata=in_json("not_default"))


@dataclass(frozen=True)
class CountedEffects:
    """Row counts at time ``at`` (RFC 3339). ``unchanged`` counts rows that would be read and are identical in the
    target; None if rows are not compared. ``ignored``: where changes have an order, those that are not newer than what
    was applied of their row, unchanged rows among them. ``columns`` counts updated rows by changed column,
    ``quarantined`` rejected rows by the checks they fail."""

    at: str
    inserted: int
    updated: int = 0
    deleted: int = 0
    unchanged: int | None = None
    columns: Mapping[str, int] = field(default_factory=dict)
    quarantined: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    samples: tuple[SampleRow, ...] = ()
    ignored: int | None = field(default=None, metadata=in_json("not_default"))


@dataclass(frozen=True)
class PreventedEffects:
    """The run would not commit the table, for the reason ``stopped``, and would end with ``exit_code``."""

    at: str
    stopped: str
    hint: str
    exit_code: int


@dataclass(frozen=True)
class UnknownEffects:
    """``unknown`` is why the effects cannot be determined before the run."""

    unknown: str


Effects = CountedEffects | PreventedEffects | UnknownEffects


def _read_effects(document: Mapping[str, Any]) -> Effects:
    if "unknown" in document:
        return from_json(UnknownEffects, document)
    if "stopped" in document:
        return from_json(PreventedEffects, document)
    return from_json(CountedEffects, document)


has_form(Effects, None, _read_effects)
