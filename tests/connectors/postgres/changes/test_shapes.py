"""Which column a name in a message stands for, by what the catalog says later."""

from __future__ import annotations

import pytest

from flowctl.connectors.postgres.changes.shapes import numbers_of


@pytest.mark.parametrize(
    ("names", "now", "numbers"),
    [
        ("id v w n", {"id": 1, "v": 2, "w": 3, "n": 4}, "1 2 3 4"),
        ("id w n v", {"id": 1, "w": 3, "n": 4, "v": 5}, "1 3 4 5"),  # v was dropped and added
        ("id v w n", {"id": 1, "w": 3, "n": 4, "v": 5}, "- - - -"),  # before that
        ("id v w n", {"id": 1, "w": 2, "v": 3, "n": 4}, "- - - -"),  # before v and w were swapped
        ("id v w n", {"id": 1, "v": 3, "n": 4}, "- - - -"),  # before v was dropped, and w took its name
        ("id v w n", {"id": 1, "w": 3, "n": 4}, "1 - 3 4"),  # before v was dropped
        ("id n", {"id": 1, "left_out": 2, "n": 3}, "1 3"),
        ("v w", {"v": 1, "w": 1}, "- -"),
    ],
)
def test_numbers_of_columns(names: str, now: dict[str, int], numbers: str) -> None:
    assert numbers_of(names.split(), now) == numbers.replace("-", "").split(" ")
