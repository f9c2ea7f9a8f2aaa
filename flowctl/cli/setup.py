"""`flowctl setup`: downloads and builds in advance what a first run needs, once per machine or for one flow."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

import click

from flowctl.cli import output
from flowctl.cli.arguments import spec_options
from flowctl.text import counted

if TYPE_CHECKING:
    from flowctl.spec.spec import Spec


@click.command("setup")
@click.argument("spec_path", metavar="[SPEC]", required=False, type=click.Path(dir_okay=False))
@click.option("--no-archive", is_flag=True, help="Download the jars only; starting Spark then takes longer.")
@spec_options
def command(
    spec_path: str | None, no_archive: bool, variables: Mapping[str, str], connections: Mapping[str, str]
) -> int:
    """Download the jars, verify their checksums, build the JVM's class-data archive.

    With SPEC, only what its connections and storage need on its engine. Skips what is already done. Everything goes to
    FLOWCTL_HOME, or the platform's cache folder.
    """
    from flowctl.engine import jars

    if spec_path is None:
        if variables or connections:
            raise click.UsageError("--var and --connection require SPEC: name the spec that uses them")
        return _prepare(tuple(jars.sets()), no_archive=no_archive)
    from flowctl.run.engine import jars_for
    from flowctl.spec.load import load_spec

    spec = load_spec([spec_path], variables, connections)
    needed = jars_for(spec)
    for name in needed.unknown:
        output.write_line(
            f"The location of connection {name} is a secret that cannot be read here: jars for its storage are left "
            "out. Set the secret and run this again, or let the first run fetch them."
        )
    if runs_elsewhere := _without_jars(spec):
        return _report(runs_elsewhere, {"java": None, "jars": 0, "sets": [], "archive": False})
    return _prepare(sorted(needed.sets), no_archive=no_archive)


def _without_jars(spec: Spec) -> str:
    """Why this flow's engine needs no jars from this machine; empty if it does."""
    from flowctl.engine.conf import is_connect, is_sail

    if is_sail(spec.spark.url):
        return f"Nothing to fetch: {spec.flow} runs on Sail, which needs neither Java nor jars"
    if is_connect(spec.spark.url):
        return f"Nothing to fetch: {spec.flow} runs on a Spark Connect server, which has its own jars"
    return ""


def _prepare(sets: Collection[str], *, no_archive: bool) -> int:
    from flowctl.engine import archive, jars, java

    found = java.find()
    files = jars.ensure(sets, output.write_line)
    if not no_archive and not archive.file_for(found, files).is_file():
        from flowctl.run.training import build_archive

        output.write_line("Building the class-data archive (once, half a minute) …")
        build_archive(sets)
    archived = "without a class-data archive" if no_archive else "class-data archive built"
    of = f" ({', '.join(sets)})" if sets else ""
    text = f"Ready: Java {found.version}, {counted(len(files), 'jar')}{of} in {jars.home()}, {archived}"
    return _report(text, {"java": found.version, "jars": len(files), "sets": list(sets), "archive": not no_archive})


def _report(text: str, kept: Mapping[str, object]) -> int:
    from flowctl.engine import jars

    if output.settings().format == "json":
        output.write_json({"format": 1, "home": str(jars.home()), **kept})
    else:
        output.write_result(text)
    return 0
