"""What a target checks before it commits a sequence number."""

from __future__ import annotations

import pytest

from flowctl.connectors.preconditions import check_base
from flowctl.errors import StateConflict


@pytest.mark.parametrize("base", [None, "2/a"])
def test_the_expected_commit_or_any_is_a_base(base: str | None) -> None:
    check_base("lake:orders", "2/a", base)


@pytest.mark.parametrize(
    ("newest", "base", "reason"),
    [
        ("3/b", "2/a", "it has sequence number 3, but the batch continues after sequence number 2"),
        ("2/b", "2/a", "it has another commit of sequence number 2, but the batch continues after sequence number 2"),
        ("", "2/a", "it has no commit, but the batch continues after sequence number 2"),
        ("2/a", "", "it has sequence number 2, but the batch continues after no commit"),
    ],
)
def test_another_base_is_described(newest: str, base: str, reason: str) -> None:
    with pytest.raises(StateConflict, match=reason):
        check_base("lake:orders", newest, base)
