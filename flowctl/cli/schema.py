"""`flowctl schema`: the JSON Schema with which editors complete and check specs."""

from __future__ import annotations

import click

from flowctl.cli import output
from flowctl.spec.editor import editor_schema


@click.command("schema")
def command() -> None:
    """Print one self-contained JSON Schema of the spec."""
    output.write_json(editor_schema())
