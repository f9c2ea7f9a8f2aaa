"""Programs that copy from PostgreSQL to PostgreSQL or to nowhere: psql and Sling."""

from __future__ import annotations

import os
from urllib.parse import urlsplit

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


def sling(setting: Setting) -> Command:
    program = str(peers.file_of("sling", "sling_linux_*/bin/sling-linux-*"))
    streams = ("--src-stream", "public.lineitem", "--tgt-object", "public.lineitem", "--mode", "full-refresh")
    given = {
        "BENCH_SOURCE": _with_password(setting.world.postgres),
        "BENCH_TARGET": _with_password(setting.database),
        "SLING_HOME_DIR": str(setting.folder / "sling"),
        "SLING_DISABLE_TELEMETRY": "true",
    }
    argv = (program, "run", "--src-conn", "BENCH_SOURCE", "--tgt-conn", "BENCH_TARGET", *streams)
    return Command(argv, setting.folder, given)


def sling_missing(_setting: Setting) -> str:
    return peers.missing("sling")


def _with_password(url: str) -> str:
    parts = urlsplit(url)
    address = f"{parts.hostname}:{parts.port}{parts.path}"
    return f"postgresql://{parts.username}:{os.environ['BENCH_PASSWORD']}@{address}?sslmode=disable"
