"""One writer thread for a run: many finished numbers, few writes, one fate."""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait
from pathlib import Path

import pytest

from flowctl.errors import AbortRun, LeaseLost, StateConflict
from flowctl.state.document import StateDocument, new_document
from flowctl.state.store import StateStore
from flowctl.state.writer import StateWriter
from tests.state.examples import RECORDED, at, commit_of, committed, intent
from tests.storage.stores import StoreAddress

TABLES = [f"table_{number}" for number in range(40)]


@pytest.fixture
def store(tmp_path: Path) -> StateStore:
    return StateStore(StoreAddress(str(tmp_path)).client())


def test_all_intents_of_a_run_are_one_write(store: StateStore) -> None:
    with StateWriter(store, store.read()) as writer:
        document = writer.begin({table: intent(1, 20) for table in TABLES})
    assert document == store.read()
    assert document.serial == 1
    assert all(document.table(table).intent for table in TABLES)


def test_finished_numbers_are_recorded_together_and_durably(store: StateStore) -> None:
    with StateWriter(store, store.read()) as writer:
        begun = writer.begin({table: intent(1, 20) for table in TABLES})
        with ThreadPoolExecutor(8) as threads:
            done: list[Future[StateDocument]] = list(
                threads.map(lambda table: writer.committed(commit_of(begun, table), RECORDED), TABLES)
            )
        wait(done)
        assert all(future.result().table(table).seq == 1 for table, future in zip(TABLES, done, strict=True))
    assert all(store.read().table(table).position == at(20) for table in TABLES)
    assert store.read().serial == writer.document.serial <= 1 + len(TABLES)


def test_what_came_while_a_write_was_under_way_is_one_write(store: StateStore) -> None:
    release = threading.Event()
    with StateWriter(store, store.read(), check=lambda: assert_set(release)) as writer:
        first = writer.change(lambda document: committed(document, "first", 1))
        others = [writer.change(lambda document, t=table: committed(document, t, 1)) for table in TABLES]  # type: ignore[misc]
        release.set()
        serials = {future.result().serial for future in others}
    assert first.result().serial == 1
    assert len(serials | {1}) <= 2


def assert_set(event: threading.Event) -> None:
    assert event.wait(60)


def test_a_change_that_does_not_apply_fails_alone(store: StateStore) -> None:
    with StateWriter(store, store.read()) as writer:
        writer.begin({"orders": intent(1, 20)})
        with pytest.raises(StateConflict, match="begun but not finished"):
            writer.begin({"orders": intent(2, 21)})
        writer.committed(commit_of(writer.document, "orders"), RECORDED).result()
    assert store.read().table("orders").seq == 1


def test_nobody_waits_for_a_change_that_breaks(store: StateStore) -> None:
    def broken(document: StateDocument) -> StateDocument:
        raise ZeroDivisionError(document.serial)

    with StateWriter(store, store.read()) as writer:
        with pytest.raises(ZeroDivisionError):
            writer.change(broken).result(60)
        assert writer.change(lambda document: committed(document, "orders", 1)).result(60).serial == 1


def test_after_a_conflict_nothing_more_is_written(store: StateStore) -> None:
    with StateWriter(store, store.read()) as writer:
        theirs = store.write(new_document())
        with pytest.raises(StateConflict, match="was written by process"):
            writer.begin({"orders": intent(1, 20)})
        with pytest.raises(StateConflict, match="was written by process"):
            writer.begin({"customers": intent(1, 20)})
    assert store.read() == theirs


def test_nothing_is_written_without_the_lease(store: StateStore) -> None:
    def lost() -> None:
        raise LeaseLost("the lease was lost")

    with StateWriter(store, store.read(), check=lost) as writer, pytest.raises(LeaseLost):
        writer.begin({"orders": intent(1, 20)})
    assert store.read().serial == 0


def test_a_closed_writer_refuses(store: StateStore) -> None:
    writer = StateWriter(store, store.read())
    writer.close()
    with pytest.raises(AbortRun, match="closed"):
        writer.begin({"orders": intent(1, 20)})
