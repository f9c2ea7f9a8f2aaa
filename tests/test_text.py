"""Paragraphs, cuts and counts for people."""

from __future__ import annotations

import pytest

from flowctl import text


def test_a_command_in_backticks_stays_whole() -> None:
    said = "Forget it with `flowctl state reset spec.yaml former` now"
    assert text.paragraph(said, 40, indent=2) == ["Forget it with", "  `flowctl state reset spec.yaml former`", "  now"]
    command = "`flowctl state reset spec.yaml former`"
    assert text.paragraph(said, 20, indent=2) == ["Forget it with", f"  {command}", "  now"]
    assert text.paragraph(f"a {'x' * 25} {command}, b", 20)[2:] == [f"{command},", "b"]


def test_only_a_word_longer_than_a_line_is_broken() -> None:
    assert text.paragraph("one " + "x" * 25, 10) == ["one xxxxxx", "x" * 10, "x" * 9]
    assert text.paragraph("", 10) == []


def test_what_is_cut_says_so() -> None:
    assert text.cut("id bigint", 9) == "id bigint"
    assert text.cut(f"id{text.NO_BREAK}bigint, name", 8) == "id bigi…"


@pytest.mark.parametrize(("seconds", "words"), [(900, "15m"), (86400, "1d"), (90, "90s"), (0.5, "0.5s")])
def test_durations_are_as_a_spec_has_them(seconds: float, words: str) -> None:
    assert text.duration(seconds) == words


def test_counts_and_sizes() -> None:
    assert (text.counted(1, "row"), text.counted(1200, "row")) == ("1 row", "1,200 rows")
    assert (text.size(120), text.size(34_100_000)) == ("120 B", "34.1 MB")
