"""What a run would change in a table, as `plan --effects` found it. A plan may hold it; nothing is executed by it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from flowctl.model.codec import from_json, has_form, in_json

Action = Literal["insert", "update", "delete"]


@dataclass(frozen=True)
class SampleRow:
    """One row that would change. All values are text, nulls None. ``before`` and ``after`` have the values of its other
    columns, None where they were not asked for: of an updated row those that change, of an inserted or deleted one
    all."""

    action: Action
    key: Mapping[str, str | None]
    before: Mapping[str, str | None] | None = field(default=None, metadata=in_json("not_default"))
    after: Mapping[str, str | None] | None = field(default=None, metadata=in_json("not_default"))


@dataclass(frozen=True)
class CountedEffects:
    """Numbers of rows, at the moment ``at`` (RFC 3339). ``unchanged`` are rows that would be read and are in the target
    as they are; None where nothing is compared. ``columns`` counts the updated rows by column that changes,
    ``quarantined`` the rejected rows by the checks that they fail."""

    at: str
    inserted: int
    updated: int = 0
    deleted: int = 0
    unchanged: int | None = None
    columns: Mapping[str, int] = field(default_factory=dict)
    quarantined: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    samples: tuple[SampleRow, ...] = ()


@dataclass(frozen=True)
class PreventedEffects:
    """The run would not commit the table, for the reason ``stopped``; ``exit_code`` would be the run's."""

    at: str
    stopped: str
    hint: str
    exit_code: int


@dataclass(frozen=True)
class UnknownEffects:
    """``unknown`` is why nobody can tell before the run."""

    unknown: str


Effects = CountedEffects | PreventedEffects | UnknownEffects


def _read_effects(document: Mapping[str, Any]) -> Effects:
    if "unknown" in document:
        return from_json(UnknownEffects, document)
    if "stopped" in document:
        return from_json(PreventedEffects, document)
    return from_json(CountedEffects, document)


has_form(Effects, None, _read_effects)
