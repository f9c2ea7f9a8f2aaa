"""ingestr, in an environment of its own. Later versions are a program that is no package of a registry."""

from __future__ import annotations

import os
from collections.abc import Callable
from urllib.parse import urlsplit

from bench import peers
from bench.case import Command, Competitor, Setting

HOW = "`ingestr ingest --yes`, the last version that a package contains, its defaults"
_SECRETS = {"postgresql": "BENCH_PASSWORD", "mysql": "BENCH_MYSQL_PASSWORD"}


def ingest(
    source: Callable[[Setting], str], target: Callable[[Setting], str], table: str, into: str
) -> Callable[[Setting], Command]:
    """Copies ``table`` of ``source`` to ``into`` of ``target``: connections as URLs, without passwords."""

    def command(setting: Setting) -> Command:
        given = {
            "SOURCE_URI": _with_password(source(setting)),
            "DESTINATION_URI": _with_password(target(setting)),
            "SOURCE_TABLE": table,
            "DESTINATION_TABLE": into,
            "PIPELINES_DIR": str(setting.folder / "ingestr"),
            "DISABLE_TELEMETRY": "true",
            "RUNTIME__DLTHUB_TELEMETRY": "false",
        }
        program = peers.python("ingestr").replace("/python", "/ingestr")
        return Command((program, "ingest", "--yes", "--progress", "log"), setting.folder, given)

    return command


def missing(_setting: Setting) -> str:
    return peers.missing("ingestr")


def cannot(what: str) -> Competitor:
    """Its place in a case that it is not made for; the results say why it is empty."""

    def never(_setting: Setting) -> Command:
        raise AssertionError(f"ingestr cannot {what}")

    version = peers.pinned("ingestr", "ingestr")
    return Competitor("ingestr", HOW, never, missing=lambda _: f"ingestr {version} cannot {what}")


def _with_password(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in _SECRETS:
        return url
    password = os.environ[_SECRETS[parts.scheme]]
    return f"{parts.scheme}://{parts.username}:{password}@{parts.hostname}:{parts.port}{parts.path}"
