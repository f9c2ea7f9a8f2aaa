"""psql, which copies from PostgreSQL to PostgreSQL or to nowhere."""

from __future__ import annotations

from bench import peers
from bench.case import Command, Setting
from bench.sources import LINEITEM


def psql_nowhere(setting: Setting) -> Command:
    """Reads ``lineitem`` and discards it: the baseline for any single-stream reader."""
    copy = r"\copy lineitem to /dev/null (format binary)"
    return Command((peers.postgres_program("psql"), "-X", "-q", setting.world.postgres, "-c", copy), setting.folder)


def psql_psql(setting: Setting) -> Command:
    """Into an empty table of the same definition."""
    psql = peers.postgres_program("psql")
    script = f"""
        set -e
        '{psql}' -Xq "$TARGET" -c "$DEFINITION"
        '{psql}' -Xq "$SOURCE" -c 'COPY lineitem TO STDOUT (FORMAT binary)' \\
            | '{psql}' -Xq "$TARGET" -c 'COPY lineitem FROM STDIN (FORMAT binary)'
    """
    given = {"SOURCE": setting.world.postgres, "TARGET": setting.database, "DEFINITION": LINEITEM}
    return Command(("/bin/sh", "-c", script), setting.folder, given)
