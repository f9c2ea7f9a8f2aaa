"""DuckDB's file: one that is missing, that is no database, that another process has open, whose writer was killed."""

from __future__ import annotations

import signal
import sqlite3
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import duckdb
import pytest

from flowctl.connectors.duckdb.database import open_database
from flowctl.connectors.sql import timeouts, waiting
from flowctl.connectors.sql.embedded import Access
from flowctl.errors import FlowctlError, TableError, WriteConflict
from tests.connectors.reading import opened, table

#: Opens the file, says so, and keeps it open.
HOLDER = """
import duckdb, signal, sys
held = duckdb.connect(sys.argv[1], read_only=sys.argv[2] == "ro")
print("open", flush=True)
signal.pause()
"""


@contextmanager
def held(path: Path, access: str) -> Iterator[subprocess.Popen[str]]:
    """The file is open in another process."""
    command = [sys.executable, "-c", HOLDER, str(path), access]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with duckdb.connect(tmp_path / "shop.duckdb") as connection:
        connection.execute("CREATE TABLE t (a INTEGER)")
    return tmp_path / "shop.duckdb"


def refusal_of(path: Path, access: Access = "ro") -> FlowctlError:
    with pytest.raises(FlowctlError) as raised, open_database(path, access):
        raise AssertionError("it was opened")
    return raised.value


@pytest.mark.parametrize("access", ["ro", "rwc"])
@pytest.mark.parametrize("content", [b"", b"just text, not a database" * 100, None])
def test_what_is_no_database_is_explained(tmp_path: Path, content: bytes | None, access: Access) -> None:
    file = tmp_path / "other.db"
    if content is None:  # DuckDB would fetch an extension that reads it
        with closing(sqlite3.connect(file)) as database:
            database.execute("CREATE TABLE t (a)")
            database.commit()
    else:
        file.write_bytes(content)
    before = file.read_bytes()
    refused = refusal_of(file, access)
    assert isinstance(refused, TableError)
    assert (refused.message, refused.hint) == (f"{file} is not a DuckDB file", "Check `path` of the connection")
    assert file.read_bytes() == before


def test_a_missing_file_is_not_created_by_a_reader(tmp_path: Path) -> None:
    with (
        opened("duckdb", path=str(tmp_path / "other.db")) as connector,
        pytest.raises(TableError, match="there is no DuckDB file"),
    ):
        connector.source.describe([table("t")])
    assert list(tmp_path.iterdir()) == []


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    assert f"{tmp_path}/absent/other.db" in refusal_of(tmp_path / "absent" / "other.db", "rwc").message


def test_a_file_of_a_newer_version_is_explained(path: Path) -> None:
    header = bytearray(path.read_bytes())
    header[12:20] = struct.pack("<Q", 999)  # after the checksum and `DUCK`
    header[0:8] = struct.pack("<Q", checksum(bytes(header[8:4096])))
    path.write_bytes(header)
    refused = refusal_of(path)
    assert "was written by another version of DuckDB (storage version 999)" in refused.message
    assert duckdb.__version__ in refused.message and "EXPORT DATABASE" in refused.hint


def test_an_encrypted_file_is_explained(tmp_path: Path) -> None:
    path = tmp_path / "secret.duckdb"
    with duckdb.connect() as connection:
        connection.execute("SET force_mbedtls_unsafe = 'true'")  # without an extension, DuckDB encrypts weakly
        connection.execute(
            f"ATTACH '{path}' AS secret (ENCRYPTION_KEY 'abcd'); CREATE TABLE secret.t (encrypted INTEGER)"
        )
        connection.execute("DETACH secret")
    assert "is encrypted, which flowctl does not support" in refusal_of(path).message


def checksum(block: bytes) -> int:
    """As DuckDB computes it; source: its `checksum.cpp`."""
    result = 5381
    for (number,) in struct.iter_unpack("<Q", block):
        result ^= number * 0xBF58476D1CE4E5B9 % 2**64
    return result


@pytest.mark.parametrize(("held_as", "access"), [("rw", "ro"), ("rw", "rwc"), ("ro", "rwc")])
def test_a_file_that_another_process_has_open_is_waited_for_and_explained(
    path: Path, held_as: str, access: Access, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeouts, "FILE_LOCK", 0.5)
    with held(path, held_as) as process:
        began = time.monotonic()
        refused = refusal_of(path, access)
        assert time.monotonic() - began >= 0.5
        assert isinstance(refused, WriteConflict)
        assert f"{path} is locked by process {process.pid} (" in refused.message
        assert refused.hint.startswith("Close it there, or try again")
        monkeypatch.setattr(timeouts, "FILE_LOCK", 30.0)
        threading.Timer(0.5, process.kill).start()
        with open_database(path, access) as connection:
            assert connection.execute("SELECT count(*) FROM t").fetchone() == (0,)


def test_several_processes_read(path: Path) -> None:
    with held(path, "ro"), open_database(path, "ro") as connection:
        assert connection.execute("SELECT count(*) FROM t").fetchone() == (0,)


def test_an_interrupted_run_does_not_wait(path: Path) -> None:
    waiting.interrupt_all()
    try:
        with held(path, "rw"):
            began = time.monotonic()
            assert isinstance(refusal_of(path), WriteConflict)
            assert time.monotonic() - began < 10
    finally:
        waiting.begin()


def test_a_statement_ends_when_the_run_is_interrupted(path: Path) -> None:
    threading.Timer(0.5, waiting.interrupt_all).start()
    try:
        with pytest.raises(TableError, match="Interrupted"), open_database(path, "ro") as connection:
            connection.execute("SELECT count(*) FROM range(1000000000) a, range(1000000000) b").fetchall()
    finally:
        waiting.begin()


def test_a_writer_does_not_wait_for_ever_for_readers_of_its_own_process(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(timeouts, "OWN_READERS", 0.5)
    with open_database(path, "ro"):
        refused = refusal_of(path, "rwc")
        assert isinstance(refused, WriteConflict) and "still being read by other tables" in refused.message
    with open_database(path, "rwc") as connection:
        connection.execute("INSERT INTO t VALUES (1)")


def test_a_file_whose_writer_was_killed_has_what_was_committed(path: Path) -> None:
    killed = """
import duckdb, os, signal, sys
connection = duckdb.connect(sys.argv[1])
connection.execute("INSERT INTO t VALUES (1)")
connection.execute("BEGIN")
connection.execute("INSERT INTO t VALUES (2)")
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", killed, str(path)], check=False)
    assert done.returncode == -signal.SIGKILL and path.with_name("shop.duckdb.wal").exists()
    for access in ("ro", "rwc"):
        with open_database(path, access) as connection:
            assert connection.execute("SELECT a FROM t").fetchall() == [(1,)]


def test_names_of_files(tmp_path: Path) -> None:
    """DuckDB names the database after the file."""
    for name in ('a b"c.duckdb', "temp.db", "system.duckdb", "main.duckdb", "a.b.c", "x'y; --.db"):
        with duckdb.connect(tmp_path / name) as connection:
            connection.execute("CREATE TABLE t AS SELECT 1 AS a")
        with opened("duckdb", base_dir=str(tmp_path), path=name) as connector:
            (info,) = connector.source.describe([table("t")]).values()
            assert info is not None and [column.name for column in info.columns] == ["a"], name
            assert str(tmp_path / name) in connector.greet()


def test_threads_that_open_and_close_one_file_at_the_same_time_all_get_it(tmp_path: Path) -> None:
    """DuckDB refuses a file that another thread is just closing as attached twice."""
    path = tmp_path / "shared.duckdb"
    with open_database(path, "rwc") as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS id")

    def read(number: int) -> list[int]:
        found = []
        for round in range(80):
            with open_database(path, "rwc" if (number + round) % 4 == 0 else "ro") as connection:
                found += [id for (id,) in connection.execute("SELECT id FROM t").fetchall()]
        return found

    with ThreadPoolExecutor(6) as threads:
        assert list(threads.map(read, range(6))) == [[1] * 80] * 6
