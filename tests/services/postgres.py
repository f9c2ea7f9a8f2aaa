"""A PostgreSQL server with a data folder of its own. Not for keeps: it never waits for the disk (``fsync=off``)."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.services.processes import HOST, NotInstalled, as_user, free_port, running

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
    "max_prepared_transactions": "10",
    "listen_addresses": HOST,
    "timezone": "Europe/Amsterdam",  # not UTC, so that a shift by a zone shows
}

_INITDB = ("--auth", "scram-sha-256", "--no-sync", "--encoding", "UTF8", "--locale", "C.UTF-8")


@dataclass(frozen=True)
class Cluster:
    """A data folder, and the programs and port with which it is served; it may be started again and again."""

    folder: Path
    port: int
    programs: Path

    @property
    def url(self) -> str:
        """A libpq URL of a superuser on the database ``postgres``."""
        return f"postgresql://{USER}:{PASSWORD}@{HOST}:{self.port}/postgres"

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @contextmanager
    def started(self, settings: Mapping[str, str] | None = None, stop_seconds: float = 3) -> Iterator[str]:
        """Its :attr:`url`, while it runs."""
        chosen = [f"-c{name}={value}" for name, value in {**_SETTINGS, **(settings or {})}.items()]
        folder = str(self.folder)
        command = [str(self.programs / "postgres"), "-D", str(self.data), "-p", str(self.port), "-k", folder, *chosen]
        log = self.folder / "postgres.log"
        # SIGTERM waits for clients to leave.
        with running(command, log=log, answers=self._answers, user=_user(), stop_seconds=stop_seconds):
            yield self.url

    def _answers(self) -> bool:
        """A socket that accepts is not yet a server that answers."""
        import psycopg

        try:
            psycopg.connect(self.url, connect_timeout=5).close()
        except psycopg.OperationalError:
            return False
        return True


@contextmanager
def server() -> Iterator[str]:
    """The installed PostgreSQL: a libpq URL of a superuser on the database ``postgres``."""
    with cluster() as made, made.started() as url:
        yield url


@contextmanager
def cluster(programs: Path | None = None) -> Iterator[Cluster]:
    """A new one, not started. ``programs`` is a folder with `postgres` and `initdb`; those installed here without."""
    with _folder() as folder:
        made = Cluster(folder, free_port(), programs or _installed())
        _init(made)
        yield made


@contextmanager
def standby_of(primary: Cluster) -> Iterator[Cluster]:
    """A copy of a running cluster (PostgreSQL 15 or newer) that follows it once it is started."""
    import psycopg

    with _folder() as folder:
        made = Cluster(folder, free_port(), primary.programs)
        with psycopg.connect(primary.url, autocommit=True) as connection:
            connection.execute("SELECT pg_backup_start('standby', true)")
            left_out = shutil.ignore_patterns("postmaster.pid", "postmaster.opts", "pg_replslot")
            shutil.copytree(primary.data, made.data, ignore=left_out)
            ((label,),) = connection.execute("SELECT labelfile FROM pg_backup_stop(false)").fetchall()
        (made.data / "pg_replslot").mkdir()
        (made.data / "backup_label").write_text(label)
        (made.data / "standby.signal").touch()
        with (made.data / "postgresql.auto.conf").open("a") as settings:
            settings.write(f"primary_conninfo = '{primary.url}'\nhot_standby_feedback = on\n")
        if user := _user():
            for path in [made.data, *made.data.rglob("*")]:
                shutil.chown(path, user, user)
        made.data.chmod(0o700)
        yield made


@contextmanager
def database(url: str, name: str, encoding: str = "") -> Iterator[str]:
    """A new, empty database on the server; dropped with the context, whoever is still connected. ``encoding`` is that
    of the server without."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as admin:
        other = f" ENCODING {encoding} LOCALE 'C'" if encoding else ""
        admin.execute(f'CREATE DATABASE "{name}" TEMPLATE template0{other}')
    try:
        yield f"{url.rpartition('/')[0]}/{name}"
    finally:
        with psycopg.connect(url, autocommit=True) as admin:
            admin.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')


@contextmanager
def _folder() -> Iterator[Path]:
    """The server refuses to run as root, and its user must be able to reach the folder: not below pytest's own."""
    with tempfile.TemporaryDirectory(prefix="flowctl-pg-", ignore_cleanup_errors=True) as folder:
        if user := _user():
            shutil.chown(folder, user, user)
        yield Path(folder)


def _user() -> str | None:
    return "postgres" if os.geteuid() == 0 else None


def _init(made: Cluster) -> None:
    user, password = _user(), made.folder / "password"
    password.write_text(PASSWORD)
    if user:
        shutil.chown(password, user)
    subprocess.run(
        [*as_user(user), made.programs / "initdb", "-D", made.data, "-U", USER, "--pwfile", password, *_INITDB],
        check=True,
        capture_output=True,
        cwd=made.folder,
    )


def _installed() -> Path:
    """Debian keeps the server's programs off the path."""
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda file: int(file.parts[-3]))
    found = str(installed[-1]) if installed else shutil.which("postgres")
    if found is None:
        raise NotInstalled("PostgreSQL is not installed here; run scripts/install-system.sh")
    return Path(found).parent


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
