"""`flowctl doctor`: every connection and stream, what is wrong, and what repairs it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from flowctl import text
from flowctl.cli import output
from flowctl.cli.arguments import spec_argument
from flowctl.text import Line, Piece

if TYPE_CHECKING:
    from flowctl.diagnostics import Diagnostic
    from flowctl.run.doctor import Report
    from flowctl.spec.spec import Spec

#: The version of the JSON that ``--format json`` prints.
FORMAT = 1


@click.command("doctor")
@spec_argument
def command(spec: Spec) -> int:
    """Ask every connection and stream, and report what is wrong with the statement or setting that repairs it."""
    from flowctl.run.doctor import examine

    report = examine(spec)
    if output.settings().format == "json":
        output.write_json({"format": FORMAT, "flow": spec.flow, **_to_json(report)})
    else:
        output.write_lines(_lines(spec.flow, report, output.width()))
    return report.exit_code


def _lines(flow: str, report: Report, width: int) -> Iterator[Line]:
    yield (Piece(flow, "bold"),)
    room = max((len(one.name) for one in report.subjects), default=0)
    for one in report.subjects:
        sign, style = (
            ("=", "dim") if one.what and not one.advice else ("~", "yellow") if one.what else ("!", "bold red")
        )
        said = one.what or "cannot be used"
        first, *rest = text.paragraph(f"{one.kind}: {said}", width - room - 4)
        yield (Piece(f"{sign} {one.name:<{room}}  {first}", style if sign != "=" else ""),)
        for line in [*rest, *([f"from {one.origin}"] if one.origin else [])]:
            yield (Piece(f"{'':<{room + 4}}{line}"),)
        for advice in one.advice:
            yield from _finding("advice", advice, width)
    for error in report.errors:
        yield (Piece(f"! {error.mark or flow}", "bold red"),)
        yield from _finding("error", error, width)
    count = sum(len(one.advice) for one in report.subjects)
    told = [text.counted(len(report.errors), "error")] if report.errors else ["No error"]
    told += [text.counted(count, "piece of advice", "pieces of advice")] if count else []
    yield (Piece(f"{', '.join(told)}.", "bold"),)


def _finding(label: str, found: Diagnostic, width: int) -> Iterator[Line]:
    yield from text.labelled(label, found.message, width)
    if found.hint:
        yield from text.labelled("repair", found.hint, width)


def _to_json(report: Report) -> dict[str, Any]:
    def of_finding(one: Diagnostic) -> dict[str, Any]:
        mark = one.mark
        at = mark if mark and mark.is_in_file else None
        place = {"place": str(mark) if mark else None, "file": at.file if at else None, "line": at.line if at else None}
        return {"code": one.code, "message": one.message, "hint": one.hint, **place}

    subjects = [
        {
            "kind": one.kind,
            "name": one.name,
            "answers": bool(one.what),
            "what": one.what,
            "origin": one.origin or None,
            "advice": [of_finding(advice) for advice in one.advice],
        }
        for one in report.subjects
    ]
    return {"subjects": subjects, "errors": [of_finding(error) for error in report.errors]}
