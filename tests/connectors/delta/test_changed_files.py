"""Files that a commit adds again, and those whose rows are too large to be compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from deltalake import DeltaTable

from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.table import open_existing
from flowctl.connectors.lake import difference
from flowctl.connectors.source import PLACE_COLUMN
from flowctl.errors import TableError
from tests.connectors.delta.delta_tables import delete, foreign_commit
from tests.connectors.delta.test_source import WRITERS, changes, changes_in_order, path, put, source, upsert

__all__ = ["path", "source"]


@pytest.mark.parametrize("options", WRITERS.values(), ids=WRITERS)
@pytest.mark.parametrize("changes_data", [False, True])
def test_files_that_are_added_again_have_the_same_rows(
    source: Any, path: str, options: Mapping[str, str], changes_data: bool
) -> None:
    """As by what gives rows their ids, or computes statistics."""
    put(path, (1, "a"), (2, "b"), configuration=options)
    put(path, (3, "c"), (4, "d"))
    add_again(path, changes_data=changes_data)
    assert changes(source, 0, 2, key=()) == [(3, "c"), (4, "d")]
    assert changes(source, 1, 2, key=()) == []
    DeltaTable(path).update({"note": "'B'"}, predicate="id = 2")
    assert changes(source, 0, 3) == [(2, "B"), (3, "c"), (4, "d")]
    assert {row["id"]: row[PLACE_COLUMN] for row in changes_in_order(source, 0, 3)} == {2: 3, 3: 1, 4: 1}
    add_again(path, changes_data=changes_data)
    DeltaTable(path).optimize.compact()
    delete(path, "id = 3")
    assert changes(source, 0, 6) == [(2, "B"), *([(3, "c", "deleted")] if options else []), (4, "d")]


def add_again(path: str, *, changes_data: bool) -> None:
    """Commits the newest version's files once more."""
    place = TableLocation(path, {})
    foreign_commit(place, *({"add": {**file, "dataChange": changes_data}} for file in open_existing(place).files))


def test_rows_with_more_text_than_can_be_compared(source: Any, path: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put(path, (1, "a"), (2, "b"))
    upsert(path, (1, "A" * 1000))
    monkeypatch.setattr(difference, "_MOST_TEXT", 500)
    with pytest.raises(TableError, match=r"orders have more than 2 GB of text in one column"):
        changes(source, 0, 1)
