"""A PostgreSQL server with a data folder of its own. Not for keeps: it never waits for the disk (``fsync=off``)."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.services.processes import HOST, free_port, listens, running

USER, PASSWORD = "etl", "etl-secret"

_SETTINGS = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "shared_buffers": "128MB",
    "max_connections": "200",
    "listen_addresses": HOST,
    "timezone": "Europe/Amsterdam",  # not UTC, so that a shift by a zone shows
}

_INITDB = ("--auth", "scram-sha-256", "--no-sync", "--encoding", "UTF8", "--locale", "C.UTF-8")


@contextmanager
def server() -> Iterator[str]:
    """A libpq URL of a superuser on the database ``postgres``."""
    # The server refuses to run as root, and its user must be able to reach the folder: not below pytest's own.
    user = "postgres" if os.geteuid() == 0 else None
    with tempfile.TemporaryDirectory(prefix="flowctl-pg-", ignore_cleanup_errors=True) as folder:
        if user:
            shutil.chown(folder, user, user)
        data = _init(Path(folder), user)
        port = free_port()
        settings = [f"-c{name}={value}" for name, value in _SETTINGS.items()]
        command = [_binary("postgres"), "-D", str(data), "-p", str(port), "-k", folder, *settings]
        # SIGTERM waits for clients to leave; pg_isready and a socket that accepts are not the same thing.
        ready = [_binary("pg_isready"), "-q", "-h", HOST, "-p", str(port)]
        with running(
            command,
            log=Path(folder, "postgres.log"),
            answers=lambda: listens(port) and subprocess.run(ready).returncode == 0,
            user=user,
            stop_seconds=3,
        ):
            yield f"postgresql://{USER}:{PASSWORD}@{HOST}:{port}/postgres"


@contextmanager
def database(url: str, name: str) -> Iterator[str]:
    """A new, empty database on the server; dropped with the context, whoever is still connected."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(f'CREATE DATABASE "{name}" TEMPLATE template0')
    try:
        yield f"{url.rpartition('/')[0]}/{name}"
    finally:
        with psycopg.connect(url, autocommit=True) as admin:
            admin.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


def _init(folder: Path, user: str | None) -> Path:
    data, password = folder / "data", folder / "password"
    password.write_text(PASSWORD)
    if user:
        shutil.chown(password, user)
    subprocess.run(
        [_binary("initdb"), "-D", data, "-U", USER, "--pwfile", password, *_INITDB],
        check=True,
        capture_output=True,
        user=user,
        group=user,
        extra_groups=[] if user else None,
        cwd=folder,
    )
    return data


def _binary(name: str) -> str:
    """Debian keeps the server's programs off the path."""
    installed = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda file: int(file.parts[-3]))
    found = str(installed[-1]) if installed else shutil.which(name)
    if found is None:
        raise FileNotFoundError(f"{name}: PostgreSQL is not installed here; run scripts/install-system.sh")
    return found
