"""A MariaDB server with a data folder of its own. Not for keeps: it hardly ever waits for the disk."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.services.processes import HOST, NotInstalled, free_port, running

USER, PASSWORD = "etl", "my-etl-secret"

_SETTINGS = {
    "bind-address": HOST,
    "innodb-buffer-pool-size": "64M",
    "innodb-log-file-size": "64M",
    "innodb-flush-log-at-trx-commit": "2",
    "performance-schema": "OFF",
    "skip-name-resolve": "ON",
    "character-set-server": "utf8mb4",
    "collation-server": "utf8mb4_general_ci",  # ignores case, as most servers do
    "default-time-zone": "+03:00",  # not UTC, so that a shift by a zone shows
    "sql-mode": "",  # as lax as a server can be: sessions must set their own
    "server-id": "1",
    "log-bin": "binlog",
    "binlog-format": "ROW",
    "binlog-row-metadata": "FULL",
}


@dataclass(frozen=True)
class Server:
    """A data folder, and the program and port with which it is served; it may be started again and again."""

    folder: Path
    port: int

    @property
    def url(self) -> str:
        """Of a user with all privileges, on the database ``flowctl``."""
        return f"mysql://{USER}:{PASSWORD}@{HOST}:{self.port}/flowctl"

    @property
    def socket(self) -> Path:
        return self.folder / "socket"

    @contextmanager
    def started(self, settings: Mapping[str, str] | None = None) -> Iterator[str]:
        """Its :attr:`url`, while it runs."""
        chosen = [f"--{name}={value}" for name, value in {**_SETTINGS, **(settings or {})}.items()]
        # A server that starts deletes the temporary tables of others that share its folder for them.
        own = [f"--datadir={self.folder / 'data'}", f"--tmpdir={self.folder}", f"--socket={self.socket}"]
        command = [_installed("mariadbd"), "--no-defaults", *own, f"--port={self.port}", *chosen]
        log = self.folder / "mariadb.log"
        with running(command, log=log, answers=self._answers, user=_user(), stop_seconds=5):
            yield self.url

    def administer(self, script: str) -> None:
        """Runs a script as root."""
        client = [_installed("mariadb"), "--no-defaults", "--protocol=socket", f"--socket={self.socket}", "-uroot"]
        subprocess.run(client, input=script.encode(), check=True, capture_output=True)

    def _answers(self) -> bool:
        client = [_installed("mariadb-admin"), "--no-defaults", "--protocol=socket", f"--socket={self.socket}"]
        return subprocess.run([*client, "-uroot", "ping"], capture_output=True, check=False).returncode == 0


@contextmanager
def server() -> Iterator[Server]:
    """The installed MariaDB, started."""
    with created() as made, made.started():
        yield made


@contextmanager
def created(settings: Mapping[str, str] | None = None) -> Iterator[Server]:
    """A new one, not started; ``settings`` are those that must be the same for the whole life of its data."""
    with tempfile.TemporaryDirectory(prefix="flowctl-my-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        if user := _user():
            shutil.chown(folder, user, user)
        made = Server(folder, free_port())
        _init(made, settings or {})
        yield made


@contextmanager
def database(there: Server, name: str) -> Iterator[str]:
    """The URL of a new, empty database on the server; dropped with the context."""
    there.administer(f"CREATE DATABASE `{name}`")
    try:
        yield f"{there.url.rpartition('/')[0]}/{name}"
    finally:
        there.administer(f"DROP DATABASE IF EXISTS `{name}`")


def _init(made: Server, settings: Mapping[str, str]) -> None:
    command = [_installed("mariadb-install-db"), "--no-defaults", f"--datadir={made.folder / 'data'}"]
    options = ["--auth-root-authentication-method=normal", "--skip-test-db"]
    options += [f"--user={user}"] if (user := _user()) else []
    given = [f"--{name}={value}" for name, value in settings.items()]
    subprocess.run([*command, *options, *given], check=True, capture_output=True)
    with made.started(settings):
        made.administer(
            f"CREATE USER '{USER}'@'{HOST}' IDENTIFIED BY '{PASSWORD}';"
            f"GRANT ALL ON *.* TO '{USER}'@'{HOST}' WITH GRANT OPTION; CREATE DATABASE flowctl"
        )


def _user() -> str | None:
    return "mysql" if os.geteuid() == 0 else None


def _installed(program: str) -> str:
    """Debian keeps the server off the path of most users."""
    found = shutil.which(program, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/bin")
    if found is None:
        raise NotInstalled("MariaDB is not installed here; run scripts/install-system.sh mariadb")
    return found
