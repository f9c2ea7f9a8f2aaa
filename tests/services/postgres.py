"""A PostgreSQL server with a data folder of its own. Not for keeps: it never waits for the disk (``fsync=off``)."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator
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
    "wal_level": "logical",
    "max_replication_slots": "100",
    "max_wal_senders": "100",
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


@contextmanager
def paused_later(url: str) -> Iterator[Callable[[], None]]:
    """A function that suspends all of a server's processes, whose kernel goes on to accept and acknowledge; they
    resume with the context."""
    import psycopg

    with psycopg.connect(url) as connection:
        (data,) = connection.execute("SHOW data_directory").fetchone() or ("",)
    main = int(Path(data, "postmaster.pid").read_text().split()[0])

    def send(number: int) -> None:
        for pid in [main, *_children(main)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    try:
        yield lambda: send(signal.SIGSTOP)
    finally:
        send(signal.SIGCONT)


def _children(parent: int) -> list[int]:
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(stat.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(stat.parent.name))
    return found
