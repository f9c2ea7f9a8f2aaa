"""`flowctl setup`: downloads and builds in advance what a first run needs, once per machine."""

from __future__ import annotations

import click

from flowctl.cli import output


@click.command("setup")
@click.option("--no-archive", is_flag=True, help="Download the jars only; starting Spark then takes longer.")
def command(no_archive: bool) -> int:
    """Download the jars, verify their checksums, build the JVM's class-data archive.

    Skips what is already done. Everything goes to FLOWCTL_HOME, or the platform's cache folder.
    """
    from flowctl.engine import archive, jars, java

    found = java.find()
    files = jars.ensure(jars.sets(), output.write_line)
    folder = jars.home()
    if not no_archive and not archive.file_for(found, files).is_file():
        from flowctl.run.training import build_archive

        output.write_line("Building the class-data archive (once, half a minute) …")
        build_archive()
    kept = {"home": str(folder), "java": found.version, "jars": len(files), "archive": not no_archive}
    if output.settings().format == "json":
        output.write_json({"format": 1, **kept})
    else:
        archived = "without a class-data archive" if no_archive else "class-data archive built"
        output.write_result(f"Ready: Java {found.version}, {kept['jars']} jars in {folder}, {archived}")
    return 0
