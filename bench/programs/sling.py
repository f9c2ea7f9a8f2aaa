"""Sling's free command line; one stream a run. What it needs DuckDB for, it does with DuckDB's own program."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

from bench import peers
from bench.case import Command, Competitor, Setting

HOW = "`sling run --mode full-refresh`, its defaults"
_ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
_SECRETS = {"postgresql": "BENCH_PASSWORD", "mysql": "BENCH_MYSQL_PASSWORD"}


def run(
    source: Callable[[Setting], str],
    target: Callable[[Setting], str],
    stream: Callable[[Setting], str],
    table: str,
    *options: str,
) -> Callable[[Setting], Command]:
    """Copies ``stream`` of ``source`` into ``table`` of ``target``: connections as URLs, without passwords. ``options``
    are the command line's other ones."""

    def command(setting: Setting) -> Command:
        program = str(peers.file_of("sling", "sling_linux_*/bin/sling-linux-*"))
        given = {
            "BENCH_SOURCE": _with_password(source(setting)),
            "BENCH_TARGET": _with_password(target(setting)),
            "SLING_HOME_DIR": str(setting.folder / "sling"),
            "SLING_DISABLE_TELEMETRY": "true",
            **_duckdb(setting.folder),
        }
        streams = ("--src-stream", stream(setting), "--tgt-object", table, "--mode", "full-refresh", *options)
        argv = (program, "run", "--src-conn", "BENCH_SOURCE", "--tgt-conn", "BENCH_TARGET", *streams)
        return Command(argv, setting.folder, given)

    return command


def missing(_setting: Setting) -> str:
    return peers.missing("sling")


def cannot(what: str) -> Competitor:
    """Its place in a case that it is not made for; the results say why it is empty."""

    def never(_setting: Setting) -> Command:
        raise AssertionError(f"Sling cannot {what}")

    version = peers.pinned("sling", "sling-linux-amd64")
    return Competitor("Sling", HOW, never, missing=lambda _: f"Sling {version} cannot {what}")


def _duckdb(home: Path) -> dict[str, str]:
    """Where it finds DuckDB's program and extensions, which it would otherwise fetch in its first run."""
    for name in ("delta", "httpfs"):
        extension = peers.file_of("sling", f"duckdb_extension_{name}/extensions/v*/*.duckdb_extension")
        installed = home / ".duckdb" / "extensions" / extension.parent.name / f"linux_{_ARCHITECTURE}"
        installed.mkdir(parents=True, exist_ok=True)
        (installed / extension.name).symlink_to(extension)
    program = str(peers.file_of("sling", "duckdb_cli/duckdb"))
    return {"HOME": str(home), "DUCKDB_PATH": program, "DUCKDB_USE_INSTALLED_EXTENSIONS": "true"}


def _with_password(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in _SECRETS:
        return url
    password = os.environ[_SECRETS[parts.scheme]]
    options = "?sslmode=disable" if parts.scheme == "postgresql" else ""
    return f"{parts.scheme}://{parts.username}:{password}@{parts.hostname}:{parts.port}{parts.path}{options}"
