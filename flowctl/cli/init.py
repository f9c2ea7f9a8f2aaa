"""`flowctl init`: writes a spec for what is in a database or a folder."""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from flowctl.cli import output
from flowctl.errors import ExitCode, UsageError
from flowctl.text import counted

if TYPE_CHECKING:
    from flowctl.init.draft import Proposal

#: The version of the JSON that ``--format json`` prints.
FORMAT = 1


@click.command("init")
@click.argument("source", metavar="URL|PATH")
@click.option("--to", metavar="URL|PATH", help="Where tables go.  [default: Delta tables in the folder lake]")
@click.option(
    "--output", "path", type=click.Path(dir_okay=False), help="The file to write.  [default: named after the source]"
)
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@click.option(
    "--select", metavar="GLOB", multiple=True, help="Only these tables, as the source names them; repeatable."
)
@click.option("--exclude", metavar="GLOB", multiple=True, help="All but these tables; repeatable.")
def command(
    source: str, to: str | None, path: str | None, force: bool, select: tuple[str, ...], exclude: tuple[str, ...]
) -> int:
    """Write a spec for the tables of a database, or for a folder of files.

    Each entry has the reason for its key, cursor and mode. `validate`, `plan` and `apply` take the file as it is.
    """
    from flowctl.init.draft import InitOptions, propose

    def refuse_path(file: Path) -> None:
        if not force and file.exists():
            raise UsageError(f"{file} exists", hint="Name another file with --output, or replace it with --force")
        if not file.parent.is_dir():
            raise UsageError(f"the folder {file.parent} does not exist", hint="Create it, or correct --output")

    options = InitOptions(source, to, Path(path) if path else None, select, exclude)
    proposal = propose(options, refuse_path)
    with proposal.path.open("w" if force else "x", encoding="utf-8") as file:
        file.write(proposal.text)
    _report(proposal)
    return ExitCode.OK


def _report(proposal: Proposal) -> None:
    if output.settings().format == "json":
        output.write_json(_document(proposal))
    else:
        output.write_result("\n".join(_lines(proposal)))


def _lines(proposal: Proposal) -> Iterator[str]:
    moved = [one for one in proposal.decisions if not one.left_out]
    modes = ", ".join(f"{count} {mode}" for mode, count in sorted(Counter(one.mode for one in moved).items()))
    yield f"{proposal.path}: {counted(len(moved), 'table')} ({modes})"
    if asked := [one for one in moved if one.decide]:
        yield f"Decide about {counted(len(asked), 'table')}: look for `# decide:` in the file"
    if left_out := [one for one in proposal.decisions if one.left_out]:
        yield f"Left out {counted(len(left_out), 'table')}, each with the reason, at the end of the file"
    for name in proposal.variables:
        yield f"The file holds no password; set it before each run: export {name}=…"
    yield f"Next: flowctl plan {shlex.quote(str(proposal.path))}"


def _document(proposal: Proposal) -> dict[str, Any]:
    return {
        "format": FORMAT,
        "path": str(proposal.path),
        "flow": proposal.flow,
        "variables": list(proposal.variables),
        "tables": [
            {
                "id": one.id,
                "object": str(one.object),
                "mode": one.mode,
                "key": list(one.key),
                "cursor": one.cursor or None,
                "reason": one.reason,
                "decide": list(one.decide),
                "left_out": one.left_out or None,
            }
            for one in proposal.decisions
        ],
    }
