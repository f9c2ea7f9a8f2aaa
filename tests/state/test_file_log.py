"""The log of files that were read: whatever the order of commits, a position leads to exactly the files up to it."""

from __future__ import annotations

import datetime as dt
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from flowctl.errors import StoppedByPolicy
from flowctl.model.file_log import FileLog, log_of
from flowctl.model.position import FileLogPosition, FilesPosition, FileStamp
from flowctl.state import document as documents
from flowctl.state import file_log
from flowctl.state import store as stores
from flowctl.state.document import StateDocument, TableState
from flowctl.state.store import Retention, StateStore
from flowctl.storage.blobs import BlobStore, MemoryStore


def stamps(*paths: str, tag: str = "1") -> list[FileStamp]:
    return [FileStamp(path, 10, tag) for path in paths]


def stored(blobs: BlobStore, *commits: list[FileStamp]) -> FileLog:
    """The log after ``commits``, each put as a run puts it."""
    log = FileLog()
    for read in commits:
        log = log.with_read("orders", read)
        file_log.put_entries(blobs, [log.entries[-1]])
    return log


def position(log: FileLog) -> FileLogPosition:
    assert log.position is not None
    return log.position


@pytest.fixture
def blobs() -> BlobStore:
    return MemoryStore(f"memory://{uuid.uuid4().hex}")


COMMITS = st.lists(st.lists(st.tuples(st.sampled_from("abcdefgh"), st.sampled_from("12")), min_size=1), max_size=12)


@given(COMMITS)
@settings(deadline=None, max_examples=50)
def test_every_position_leads_to_the_files_read_up_to_it(commits: list[list[tuple[str, str]]]) -> None:
    store = MemoryStore(f"memory://{uuid.uuid4().hex}")
    log, read, known = FileLog(), {}, []
    for commit in commits:
        new = {path: FileStamp(path, 1, tag) for path, tag in commit}
        log = log.with_read("orders", new.values())
        file_log.put_entries(store, [log.entries[-1]])
        read = read | new
        known.append((position(log), dict(read), new))
    for at, expected, new in known:
        found = file_log.read_log(store, at)
        assert (found.files, found.position) == (expected, at)
        assert {stamp.path: stamp for stamp in found.entries[-1].read} == new


def test_a_position_leads_to_few_entries_however_many_commits_there_were() -> None:
    log, written = FileLog(), 0
    for number in range(1000):
        log = log.with_read("orders", stamps(f"{number:04}.csv"))
        written += len(log.entries[-1].files)
    assert len(log.entries) <= 10 and len(log.files) == 1000
    assert written <= 1000 * 11  # a list in each document would have come to 500,000


def test_the_list_of_an_older_flowctl_is_carried_over(blobs: BlobStore) -> None:
    old = FilesPosition(tuple(stamps("a.csv", "b.csv")))
    carried = log_of("orders", old)
    file_log.put_entries(blobs, carried.entries)
    assert file_log.read_log(blobs, position(carried)).files == {stamp.path: stamp for stamp in old.files}
    assert log_of("orders", FilesPosition(())).position is None


@pytest.mark.parametrize("damage", ["missing", "torn", "other content", "older entry missing"])
def test_a_log_that_cannot_be_read_says_what_to_do(blobs: BlobStore, damage: str) -> None:
    log = stored(blobs, stamps("a.csv", "b.csv", "c.csv"), stamps("d.csv"))
    newest, older = (f"files/{entry.digest}.json.gz" for entry in reversed(log.entries))
    name = older if damage == "older entry missing" else newest
    data = blobs.get(name)
    assert data is not None
    blobs.delete(name)
    if damage == "torn":
        blobs.create(name, data[: len(data) // 2])
    elif damage == "other content":
        content = blobs.get(older)
        assert content is not None
        blobs.create(name, content)
    with pytest.raises(StoppedByPolicy, match=r"missing|damaged") as refusal:
        file_log.read_log(blobs, position(log))
    assert "--full-refresh" in refusal.value.hint and "state set" in refusal.value.hint


def _written(store: StateStore, document: StateDocument, log: FileLog) -> StateDocument:
    return store.write(documents.with_position(document, "orders", log.position))


def test_entries_are_deleted_once_no_kept_document_can_name_them(
    blobs: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stores, "PRUNE_EVERY", 1)
    store = StateStore(blobs, retention=Retention(3, dt.timedelta(0)))
    document, log = StateDocument("l", tables={"orders": TableState()}), FileLog()
    for number in range(40):
        before = log
        log = log.with_read("orders", stamps(f"{number}.csv"))
        file_log.put_entries(blobs, [log.entries[-1]])
        document = _written(store, document, log)
        left = {entry.digest for entry in before.entries} - {entry.digest for entry in log.entries}
        file_log.retire(blobs, left, document.serial)
    for version in store.history():
        kept = store.read_serial(version.serial).table("orders").position
        assert isinstance(kept, FileLogPosition)
        assert len(file_log.read_log(blobs, kept).files) == kept.count
    assert len(blobs.list("files/")) < 12


def test_an_entry_that_a_position_came_back_to_is_kept(blobs: BlobStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "PRUNE_EVERY", 1)
    store = StateStore(blobs, retention=Retention(1, dt.timedelta(0)))
    first = stored(blobs, stamps("a.csv"))
    second = stored(blobs, stamps("a.csv"), stamps("b.csv"))
    document = _written(store, StateDocument("l", tables={"orders": TableState()}), second)
    file_log.retire(blobs, {first.entries[-1].digest}, document.serial)
    file_log.revive_positions(blobs, [first.position])  # as `state rollback` does before it writes
    for _ in range(3):
        document = _written(store, document, first)
    document = _written(store, document, second)
    document = _written(store, document, second)
    assert file_log.read_log(blobs, position(first)) == first
