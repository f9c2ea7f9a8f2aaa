"""`flowctl validate`: every error of every spec at once, without a JVM, a driver or (except with `--connect`) a
connection."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import click

from flowctl.cli import output
from flowctl.cli.arguments import spec_options
from flowctl.diagnostics import Diagnostic, in_order
from flowctl.errors import ExitCode, SpecError
from flowctl.resolve.resolve import resolve
from flowctl.spec.load import Reading, read_spec
from flowctl.spec.node import Node, flow_text, leaves, plain

#: The version of the JSON that ``--format json`` prints.
FORMAT = 1


@click.command("validate")
@click.argument("spec_paths", metavar="SPEC...", nargs=-1, required=True, type=click.Path(dir_okay=False))
@click.option("--connect", is_flag=True, help="Also check that objects and permissions exist.")
@click.option("--resolved", is_flag=True, help="Print the effective spec with the origin of each value.")
@click.option(
    "--format",
    "format",
    type=click.Choice(["text", "json", "github"]),
    default="text",
    show_default=True,
    help="Format of the findings; github annotates pull requests.",
)
@spec_options
def command(
    spec_paths: tuple[str, ...],
    connect: bool,
    resolved: bool,
    format: output.Format,
    variables: Mapping[str, str],
    connections: Mapping[str, str],
) -> int:
    """Check each SPEC on its own and report all errors at once."""
    readings = {path: _resolve(read_spec([path], variables, connections), connect=connect) for path in spec_paths}
    diagnostics = in_order(diagnostic for reading in readings.values() for diagnostic in reading.diagnostics)
    match format:
        case "text":
            _print_text(readings, diagnostics, resolved=resolved)
        case "json":
            output.write_json(_document(readings, diagnostics, resolved=resolved))
        case "github":
            for diagnostic in diagnostics:
                output.write_result(_annotation(diagnostic))
    return _exit_code(diagnostics, connect=connect)


def _exit_code(diagnostics: Sequence[Diagnostic], *, connect: bool) -> int:
    """3 for an invalid spec; findings of the systems themselves have the code that `plan` and `apply` end with."""
    if not connect:
        return ExitCode.SPEC if diagnostics else ExitCode.OK
    from flowctl.run.connect import exit_code

    return exit_code(diagnostics)


def _resolve(reading: Reading, *, connect: bool) -> Reading:
    """Adds the errors that would stop every run of the spec; with ``connect`` also those that its systems report."""
    if reading.spec is None:
        return reading
    try:
        resolve(reading.spec, discovered={})
    except SpecError as error:
        return replace(reading, spec=None, diagnostics=error.diagnostics)
    if not connect:
        return reading
    from flowctl.run.connect import check

    return replace(reading, diagnostics=check(reading.spec).diagnostics)


def _print_text(readings: Mapping[str, Reading], diagnostics: Sequence[Diagnostic], *, resolved: bool) -> None:
    for reading in readings.values():
        if resolved and reading.spec and reading.resolved:
            output.write_result("\n".join(_render_resolved(reading.resolved)))
    for diagnostic in diagnostics:
        output.write_line(diagnostic.render())
    if diagnostics:
        output.write_line(f"{len(diagnostics)} error{'s' if len(diagnostics) > 1 else ''}")
    elif not resolved:
        for path, reading in readings.items():
            if reading.spec:
                tables = len(reading.spec.tables)
                output.write_result(f"{path}: valid, {tables} table{'' if tables == 1 else 's'}")


def _render_resolved(node: Node, indent: str = "") -> list[str]:
    """YAML, with ``# file:line`` and the layer (``defaults``, a pattern's id) after each value."""
    lines: list[str] = []
    for key, child in node.entries.items():
        if child.entries:
            lines += [f"{indent}{flow_text(key)}:", *_render_resolved(child, indent + "  ")]
        else:
            lines.append(f"{indent}{flow_text(key)}: {flow_text(plain(child))}  # {_origin(child)}")
    return lines


def _origin(node: Node) -> str:
    return f"{node.mark.brief} ({node.origin})" if node.origin else node.mark.brief


def _document(readings: Mapping[str, Reading], diagnostics: Sequence[Diagnostic], *, resolved: bool) -> dict[str, Any]:
    specs = []
    for path, reading in readings.items():
        spec: dict[str, Any] = {"path": path, "valid": reading.spec is not None}
        if reading.spec:
            spec |= {"flow": reading.spec.flow, "tables": len(reading.spec.tables), "digest": reading.spec.digest}
        if resolved and reading.spec and reading.resolved:
            spec["resolved"] = [
                {"path": name, "value": plain(leaf), "origin": _origin(leaf)} for name, leaf in leaves(reading.resolved)
            ]
        specs.append(spec)
    return {"format": FORMAT, "specs": specs, "diagnostics": [_as_json(diagnostic) for diagnostic in diagnostics]}


def _as_json(diagnostic: Diagnostic) -> dict[str, Any]:
    mark = diagnostic.mark
    at = mark if mark and mark.is_in_file else None
    return {
        "severity": "error",
        "code": diagnostic.code,
        "message": diagnostic.message,
        "hint": diagnostic.hint,
        "place": str(mark) if mark else None,
        "file": at.file if at else None,
        "line": at.line if at else None,
        "column": at.column if at else None,
    }


def _annotation(diagnostic: Diagnostic) -> str:
    """A GitHub workflow command; source: GitHub's reference, Workflow commands for GitHub Actions."""
    mark = diagnostic.mark
    text = diagnostic.message + (f". {diagnostic.hint}" if diagnostic.hint else "")
    if mark is None:
        return f"::error::{_escape(text)}"
    if not mark.is_in_file:
        return f"::error::{_escape(f'{mark}: {text}')}"
    return f"::error file={_property(mark.file)},line={mark.line},col={mark.column}::{_escape(text)}"


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _escape(text).replace(":", "%3A").replace(",", "%2C")
