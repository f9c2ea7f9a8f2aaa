"""The effects of a table as text: one line, sample rows, and the totals of a plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import assert_never

from flowctl.errors import ExitCode
from flowctl.model.effects import Action, CountedEffects, Effects, PreventedEffects, SampleRow, UnknownEffects

_SIGNS: Mapping[Action, str] = {"insert": "+", "update": "~", "delete": "-"}
#: Characters of a displayed value.
_LONGEST = 40


def describe(effects: Effects) -> str:
    """``20 inserted, 3 updated (status 3, note 1), 1 deleted, 976 unchanged``."""
    match effects:
        case CountedEffects():
            return ", ".join(_counts(effects)) or "nothing changes"
        case PreventedEffects():
            return f"would {'stop' if effects.exit_code == ExitCode.STOPPED else 'fail'}: {effects.stopped}"
        case UnknownEffects():
            return f"unknown: {effects.unknown}"
        case _:
            assert_never(effects)


def _counts(effects: CountedEffects) -> Iterator[str]:
    if effects.inserted:
        yield f"{effects.inserted:,} inserted"
    if effects.updated:
        by_count = sorted(effects.columns.items(), key=lambda one: -one[1])
        columns = ", ".join(f"{_printable(name)} {count:,}" for name, count in by_count)
        yield f"{effects.updated:,} updated" + (f" ({columns})" if columns else "")
    if effects.deleted:
        yield f"{effects.deleted:,} deleted"
    if effects.unchanged:
        yield f"{effects.unchanged:,} unchanged"
    if effects.ignored:
        yield f"{effects.ignored:,} ignored"
    for checks, count in effects.quarantined.items():
        yield f"{count:,} to quarantine ({checks})"


def totals(found: Sequence[CountedEffects]) -> str:
    """``20 inserted, 3 updated, 1 deleted, as of 2026-11-20 06:15:33 UTC``; the time is the earliest of all."""
    total = CountedEffects(
        at=min(one.at for one in found),
        inserted=sum(one.inserted for one in found),
        updated=sum(one.updated for one in found),
        deleted=sum(one.deleted for one in found),
    )
    return f"{describe(total)}, as of {total.at[:19].replace('T', ' ')} UTC"


def sample_lines(samples: Iterable[SampleRow]) -> list[str]:
    """One line per sample, with keys aligned: ``~ id 7   status open → closed``."""
    keys = [", ".join(f"{_printable(name)} {_value(value)}" for name, value in one.key.items()) for one in samples]
    width = max(map(len, keys), default=0)
    return [
        f"{_SIGNS[one.action]} {key:<{width}}  {_changes(one)}".rstrip() for key, one in zip(keys, samples, strict=True)
    ]


def _changes(sample: SampleRow) -> str:
    before, after = sample.before or {}, sample.after or {}
    if sample.action == "update":
        told = {name: f"{_value(before[name])} → {_value(value)}" for name, value in after.items()}
    else:
        told = {name: _value(value) for name, value in (after or before).items()}
    return ", ".join(f"{_printable(name)} {value}" for name, value in told.items())


def _value(value: str | None) -> str:
    if value is None:
        return "null"
    shown = _printable(value)
    return shown if len(shown) <= _LONGEST else shown[: _LONGEST - 1] + "…"


def _printable(value: str) -> str:
    """Escapes control characters, which a terminal would execute."""
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in value)
