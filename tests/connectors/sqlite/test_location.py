"""Paths and `file:` URIs of SQLite files, databases in WAL mode, and what this user may not do, on real files."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import quote

import pytest

from flowctl.cli import main
from flowctl.connectors.source import ReadRequest
from flowctl.connectors.sqlite.location import Location, location_of
from flowctl.errors import ExitCode, TableError
from flowctl.model.table_info import ObjectName
from tests.connectors.reading import Collected, captured_rows, describe, opened, table

_NOBODY = 65534


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("a.db", Location("a.db")),
        ("./file:a.db", Location("./file:a.db")),
        ("file:a.db", Location("a.db")),
        ("file:/data/a%3Fb%25%20c.db?mode=ro", Location("/data/a?b% c.db", "ro")),
        ("file:///data/a.db?immutable=1#part", Location("/data/a.db", "rwc", True)),
        ("file://localhost/data/a.db?mode=rw&immutable=off&", Location("/data/a.db", "rw")),
        ("file:%ff.db?m%6Fde=ro", Location("\udcff.db", "ro")),
    ],
)
def test_a_uri_names_a_file_and_how_it_is_opened(path: str, expected: Location) -> None:
    assert location_of(path) == expected


@pytest.mark.parametrize(
    ("path", "flaw"),
    [
        ("file:", "names no file"),
        ("file:?mode=ro", "names no file"),
        ("file:///", "names no file"),
        ("file:a%00.db", "names no file"),
        ("file://server/a.db", "another machine"),
        ("file:a.db?mode=memory", "its parameter mode=memory"),
        ("file:a.db?immutable=perhaps", "its parameter immutable=perhaps"),
        ("file:a.db?nolock=1", "its parameter nolock=1"),
    ],
)
def test_other_uris_are_refused(path: str, flaw: str) -> None:
    with pytest.raises(TableError, match=flaw), opened("sqlite", path=path):
        pass


@pytest.mark.parametrize(
    "name", ["a?mode=rw.db", "a%3Fb.db", "a#b.db", "a'b\";--.db", "ä 🦆.db", "\udcff\udcfe.db", "file:x.db"]
)
@pytest.mark.parametrize("as_uri", [False, True])
def test_every_name_of_a_file_is_read_as_it_is(tmp_path: Path, name: str, as_uri: bool) -> None:
    with closing(sqlite3.connect(tmp_path / "made.db")) as made:
        made.executescript("CREATE TABLE t (a INTEGER); INSERT INTO t VALUES (7)")
    path = tmp_path / name
    (tmp_path / "made.db").rename(path)
    given = f"file:{quote(os.fsencode(path))}?mode=ro" if as_uri else str(path)
    with opened("sqlite", path=given) as connector:
        assert captured_rows(connector.source, table("t")) == [{"a": 7}]
    with opened("sqlite", path=str(path)) as plain, opened("sqlite", path=given) as named:
        assert describe(plain.source, table("t")).system == describe(named.source, table("t")).system
    assert [file.name for file in tmp_path.iterdir()] == [name]


@pytest.fixture
def wal() -> Iterator[Path]:
    """A database in WAL mode whose rows are in the log only, as another process has it open; any user may enter its
    folder."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        with closing(sqlite3.connect(folder / "a.db", isolation_level=None)) as writer:
            writer.executescript("PRAGMA journal_mode = wal; CREATE TABLE t (a INTEGER); INSERT INTO t VALUES (1)")
            yield folder / "a.db"
        folder.chmod(0o755)


@contextmanager
def without_rights(folder: Path) -> Iterator[None]:
    """Nothing in the folder can be written, whoever runs the tests."""
    folder.chmod(0o555)
    is_root = os.geteuid() == 0
    if is_root:
        os.setresuid(_NOBODY, _NOBODY, 0)
    try:
        yield
    finally:
        if is_root:
            os.setresuid(0, 0, 0)
        folder.chmod(0o755)


def add(path: Path, value: int) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as writer:
        writer.execute("INSERT INTO t VALUES (?)", [value])


def test_what_is_in_the_log_only_is_read_and_a_commit_meanwhile_is_not(wal: Path) -> None:
    with opened("sqlite", path=str(wal)) as connector:
        source, sink = connector.source, Collected()
        info = describe(source, table("t"))
        with source.capture(table("t"), info) as capture:
            add(wal, 2)
            capture.read(ReadRequest(info.columns), sink)
        assert sink.rows == [{"a": 1}]
        assert captured_rows(source, table("t")) == [{"a": 1}, {"a": 2}]


def test_a_copy_with_its_log_but_without_the_index_of_it(wal: Path, tmp_path: Path) -> None:
    for suffix in ("", "-wal"):
        shutil.copy(f"{wal}{suffix}", tmp_path)
    with opened("sqlite", path=str(tmp_path / "a.db")) as connector:
        assert captured_rows(connector.source, table("t")) == [{"a": 1}]


def test_immutable_is_refused_while_changes_are_elsewhere(wal: Path) -> None:
    """SQLite itself would read an older state without a word."""
    with opened("sqlite", path=f"file:{wal}?immutable=1") as connector:
        with pytest.raises(TableError, match=f"{wal}-wal has changes that are not in it yet"):
            connector.source.describe([table("t")])
        with closing(sqlite3.connect(wal)) as writer:
            writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        assert captured_rows(connector.source, table("t")) == [{"a": 1}]


def test_a_folder_that_cannot_be_written(wal: Path) -> None:
    lonely = wal.parent / "copies" / "a.db"  # closed properly, in WAL mode still
    lonely.parent.mkdir()
    with closing(sqlite3.connect(wal)) as writer:
        writer.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copy(wal, lonely)
    with opened("sqlite", path=str(lonely)) as connector, without_rights(lonely.parent):
        with pytest.raises(TableError, match=f"WAL mode.*: {lonely.parent} cannot be written") as raised:
            connector.source.describe([table("t")])
        assert "immutable=1" in (raised.value.hint or "")
    with opened("sqlite", path=f"file:{lonely}?immutable=1") as connector, without_rights(lonely.parent):
        assert captured_rows(connector.source, table("t")) == [{"a": 1}]
    assert [file.name for file in lonely.parent.iterdir()] == ["a.db"]
    add(wal, 2)
    shutil.copy(f"{wal}-wal", lonely.parent)
    with opened("sqlite", path=str(lonely)) as connector, without_rights(lonely.parent):
        with pytest.raises(TableError, match=f"WAL mode.*: {lonely}-wal cannot be written") as raised:
            connector.source.describe([table("t")])
        assert "immutable" not in (raised.value.hint or "")
        assert connector.target.why_unwritable(ObjectName(("t",)), "append") is not None


def test_with_the_index_of_the_log_no_right_to_write_is_needed(wal: Path) -> None:
    for own in wal.parent.iterdir():
        own.chmod(0o644)
    with opened("sqlite", path=str(wal)) as connector, without_rights(wal.parent):
        assert captured_rows(connector.source, table("t")) == [{"a": 1}]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: path.chmod(0), "cannot be read"),
        (lambda path: path.write_bytes(path.read_bytes()[:100] + b"\xff" * 4000), "is damaged, SQLite says"),
    ],
)
def test_a_file_that_cannot_be_read(damage: object, message: str, wal: Path) -> None:
    path = wal.parent / "other.db"
    with closing(sqlite3.connect(path)) as made:
        made.executescript("CREATE TABLE t (a INTEGER); INSERT INTO t VALUES (7)")
    assert callable(damage)
    damage(path)
    with (
        opened("sqlite", path=str(path)) as connector,
        without_rights(wal.parent),
        pytest.raises(TableError, match=message),
    ):
        connector.source.describe([table("t")])


_SPEC = """\
version: 1
flow: shop
state: state
spark: {{url: sail}}
connections:
  app: {{type: sqlite, path: "file:a.db?mode=ro"}}
  out: {{type: sqlite, path: "file:{out}"}}
tables:
  t: {{from: "app:t", to: "{to}:u", mode: truncate}}
"""


@pytest.mark.parametrize("parameter", ["mode=ro", "immutable=1"])
def test_a_target_that_only_reads_is_refused_offline(
    parameter: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("spec.yaml").write_text(_SPEC.format(out=f"b.db?{parameter}", to="out"))
    assert main.run(["validate", "spec.yaml"]) == ExitCode.SPEC
    assert f"the connection's `path` has {parameter}, so that nothing can be written" in capsys.readouterr().err


def test_rw_creates_no_file(tmp_path: Path) -> None:
    with (
        opened("sqlite", str(tmp_path), path="file:b.db?mode=rw") as connector,
        pytest.raises(TableError, match="there is no SQLite file"),
        connector.target.writing_session(),
    ):
        pass
    assert not (tmp_path / "b.db").exists()
