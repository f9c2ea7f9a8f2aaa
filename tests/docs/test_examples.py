"""What the documentation shows is true: every YAML example is a valid spec, every command line is accepted."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from flowctl.cli.main import _COMMANDS, command_of
from flowctl.spec.load import load_spec

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
HEAD = """
version: 1
flow: docs
state: state
connections:
  pg: {type: postgres, host: db, database: shop, user: etl, password: "${secret:env:PG_PASSWORD}"}
  lake: {type: delta, path: lake}
  inbox: {type: files, path: inbox}
defaults: {to: lake}
tables:
"""
YAML = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"(?:^ {4}|`)(flowctl [a-z][^`\n#]*)", re.MULTILINE)


def examples() -> Iterator[tuple[str, str]]:
    for page in PAGES:
        for number, found in enumerate(YAML.findall(page.read_text()), 1):
            if "apiVersion:" not in found:  # Kubernetes' own, in deploy.md
                yield f"{page.name}-{number}", found


def commands() -> Iterator[str]:
    found = {line.strip() for page in PAGES for line in COMMAND.findall(page.read_text())}
    yield from sorted(line for line in found if "…" not in line and "|" not in line)


@pytest.mark.parametrize("text", [pytest.param(text, id=name) for name, text in examples()])
def test_every_yaml_example_is_a_valid_spec(text: str, tmp_path: Path) -> None:
    whole = text if "version:" in text else HEAD + textwrap.indent(text, "  ")
    spec = tmp_path / "flow.yaml"
    spec.write_text(whole)
    assert load_spec([spec], {}).tables


@pytest.mark.parametrize("line", [*commands()])
def test_every_command_line_is_accepted(line: str) -> None:
    name, *arguments = shlex.split(line)[1:]
    command = command_of(name)
    while isinstance(command, click.Group) and arguments:
        command = command.commands[arguments.pop(0)]
    if arguments or not isinstance(command, click.Group):
        command.make_context(line, arguments, resilient_parsing=not arguments)


def options_of(command: click.Command, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield from options_of(child, f"{path} {name}")
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            yield path, parameter.opts[0]


@pytest.mark.parametrize("name", sorted(_COMMANDS))
def test_every_option_is_documented(name: str) -> None:
    page = (ROOT / "docs" / "commands.md").read_text()
    missing = [f"{path} {option}" for path, option in options_of(command_of(name), name) if f"`{option}" not in page]
    assert not missing
