"""A sequence number is claimed by a record that is kept, or not at all."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from flowctl.connectors.sql import commits
from flowctl.errors import StateConflict, TableError
from flowctl.model.commit import Commit
from flowctl.model.position import VersionPosition
from flowctl.storage.buffer import Buffer
from tests.connectors.target_matrix import FACTORIES, Place
from tests.connectors.writing import AT, LINEAGE

SWALLOWED = (
    "CREATE FUNCTION swallowed() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';"
    "CREATE TRIGGER swallows BEFORE INSERT ON {commits} FOR EACH ROW EXECUTE FUNCTION swallowed()"
)
DELETED = (
    "CREATE FUNCTION deleted() RETURNS trigger LANGUAGE plpgsql AS"
    " 'BEGIN DELETE FROM {commits} WHERE seq = new.seq; RETURN NULL; END';"
    "CREATE TRIGGER deletes AFTER INSERT ON {commits} FOR EACH ROW EXECUTE FUNCTION deleted()"
)
IGNORED = "CREATE TRIGGER ignores BEFORE INSERT ON {commits} BEGIN SELECT RAISE(IGNORE); END"


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path, scratch: Buffer) -> Iterator[Place]:
    with FACTORIES[request.param](request, tmp_path, scratch) as opened:
        yield opened


def record(seq: int, table: str = "orders", intent: str = "") -> Commit:
    return Commit(LINEAGE, table, seq, intent or f"intent-{seq}", "", VersionPosition(seq))


def claim(place: Place, wanted: Commit, before_commit: Any = lambda: None) -> Commit | None:
    target: Any = place.target
    with target.writing_session() as session:
        target.ensure_commits(session, place.object)
        table = target.commits_table(session, place.object)
        with session.transaction():
            found = commits.claim(session, table, wanted, AT)
            if found is None:
                commits.name_target(session, table, wanted)
            before_commit()
        return found


def commits_table(place: Place) -> str:
    target: Any = place.target
    with target.session() as session:
        return str(target.dialect.table(target.commits_table(session, place.object)))


@pytest.mark.parametrize(
    ("place", "trigger"), [("postgres", SWALLOWED), ("postgres", DELETED), ("sqlite", IGNORED)], indirect=["place"]
)
def test_a_record_that_is_not_kept_is_no_claim(place: Place, trigger: str) -> None:
    assert claim(place, record(1)) is None
    place.execute(trigger.replace("{commits}", commits_table(place)))
    for wanted in (record(2), record(1, "lines")):
        with pytest.raises(TableError, match=f"_flowctl_commits did not keep the commit of {wanted.table}"):
            claim(place, wanted)


@pytest.mark.parametrize("place", ["mysql"], indirect=True)
def test_a_record_is_stored_under_its_own_id(place: Place) -> None:
    assert claim(place, record(1, "t" * 255)) is None
    with pytest.raises(TableError, match="Data too long for column 'table'"):
        claim(place, record(1, "t" * 256))
    assert claim(place, record(2, "t" * 255)) is None


@pytest.mark.parametrize("place", ["mysql", "postgres"], indirect=True)
@pytest.mark.parametrize("intent", ["ours", "another"])
def test_the_second_of_two_waits_for_the_first(place: Place, intent: str) -> None:
    claim(place, record(1))
    is_claimed, may_commit = threading.Event(), threading.Event()

    def hold() -> None:
        is_claimed.set()
        assert may_commit.wait(30)

    with ThreadPoolExecutor(2) as pool, ExitStack() as ended:
        ended.callback(may_commit.set)
        first = pool.submit(claim, place, record(2, intent="ours"), hold)
        assert is_claimed.wait(30)
        second = pool.submit(claim, place, record(2, intent=intent))
        with pytest.raises(TimeoutError):
            second.result(1)
        may_commit.set()
        assert first.result(30) is None
        if intent == "ours":
            found = second.result(30)
            assert found is not None and (found.seq, found.intent_id) == (2, "ours")
        else:
            with pytest.raises(StateConflict, match="number 2 of another try"):
                second.result(30)
