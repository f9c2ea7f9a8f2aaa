"""Links to folders: a file that two paths lead to is read once, and stays the file that state knows."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from flowctl.connectors.files.listing import all_paths, listed
from flowctl.connectors.survey import Survey
from flowctl.errors import TableError
from flowctl.model.position import FileStamp
from tests.connectors.reading import files


def stamps(source: Any, pattern: str, read: Mapping[str, FileStamp] | None = None) -> dict[str, FileStamp]:
    _, watermark = source.describe_files(files(pattern), read or {})
    return {stamp.path: stamp for stamp in watermark.position.files}


def by_all_paths(source: Any, pattern: str) -> dict[str, FileStamp]:
    """What an older flowctl has read."""
    return {stamp.path: stamp for stamp in listed(source.root, pattern)}


def new(source: Any, pattern: str, read: Mapping[str, FileStamp]) -> list[str]:
    """The files that a plan reads: those that changed are among them."""
    return [path for path, stamp in stamps(source, pattern, read).items() if read.get(path) != stamp]


def write(path: Path, text: str = "id\n1\n") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def turn(link: Path, target: str) -> None:
    link.unlink(missing_ok=True)
    link.symlink_to(target)


@pytest.mark.parametrize(("name", "pattern"), [("latest", "**/*.csv"), ("2025", "**/*.csv"), ("latest", "*/*.csv")])
def test_a_folder_and_a_link_to_it_are_one(inbox: Path, source: Any, name: str, pattern: str) -> None:
    write(inbox / "2026-11-29/a.csv")
    turn(inbox / name, "2026-11-29")
    read = stamps(source, pattern)
    assert [*read] == ["2026-11-29/a.csv"]
    write(inbox / "2026-11-30/a.csv", "id\n2\n")
    turn(inbox / name, "2026-11-30")
    assert new(source, pattern, read) == ["2026-11-30/a.csv"]


def test_each_path_is_a_table_of_its_own_if_files_are(inbox: Path, source: Any) -> None:
    write(inbox / "2026-11-29/a.csv")
    turn(inbox / "latest", "2026-11-29")
    assert [str(one) for one in source.discover(("*/a.csv",))] == ["2026-11-29/a.csv", "latest/a.csv"]


def test_a_link_alone_is_a_folder(inbox: Path, source: Any, tmp_path: Path) -> None:
    for path in (tmp_path / "outside/29/a.csv", inbox / ".hidden/b.csv", inbox / "data/c.csv", inbox / "d.csv"):
        write(path)
    turn(inbox / "out", str(tmp_path / "outside"))
    turn(tmp_path / "outside/latest", "29")  # a link within a link: the other path has fewer
    turn(inbox / "shown", ".hidden")
    turn(inbox / "by-name", "data")
    turn(inbox / "e.csv", "d.csv")
    for pattern, paths in {
        "**/*.csv": ["d.csv", "data/c.csv", "e.csv", "out/29/a.csv", "shown/b.csv"],
        "by-*/*.csv": ["by-name/c.csv"],
        "out/latest/*.csv": ["out/latest/a.csv"],
        "out/*/*.csv": ["out/29/a.csv"],
    }.items():
        assert [*stamps(source, pattern)] == paths
    survey: Survey = source.survey(lambda object: True)
    assert not any("latest" in str(one.object) or "by-name" in str(one.object) for one in survey.tables)
    assert all_paths(source.root)[1] == ["d.csv", "data/c.csv", "e.csv", "out/29/a.csv", "shown/b.csv"]


def test_two_links_to_a_folder_that_no_other_path_leads_to_stop_the_table(
    inbox: Path, source: Any, tmp_path: Path
) -> None:
    write(tmp_path / "outside/a.csv")
    for name in ("current", "v2"):
        turn(inbox / name, str(tmp_path / "outside"))
    with pytest.raises(TableError, match=r"^current/a\.csv and v2/a\.csv are one file") as refused:
        stamps(source, "**/*.csv")
    assert refused.value.hint == "Name one of the folders in `from`, or remove a link"
    assert [*stamps(source, "v*/*.csv")] == ["v2/a.csv"]


def test_what_an_older_flowctl_read_by_both_paths_is_not_new(inbox: Path, source: Any) -> None:
    write(inbox / "29/a.csv")
    turn(inbox / "latest", "29")
    read = by_all_paths(source, "**/*.csv")
    assert [*read] == ["29/a.csv", "latest/a.csv"]
    assert new(source, "**/*.csv", read) == []
    write(inbox / "29/b.csv")
    assert new(source, "**/*.csv", read) == ["29/b.csv"]
    write(inbox / "30/a.csv", "id\n2\n3\n")
    turn(inbox / "latest", "30")
    assert new(source, "**/*.csv", read) == ["29/b.csv", "30/a.csv"]
    write(inbox / "29/a.csv", "id\n1\n2\n3\n")
    assert new(source, "**/*.csv", read) == ["29/a.csv", "29/b.csv", "30/a.csv"]


def test_what_was_read_before_its_folder_moved_behind_a_link_is_not_new(inbox: Path, source: Any) -> None:
    write(inbox / "data/a.csv")
    read = by_all_paths(source, "**/*.csv")
    (inbox / "archive").mkdir()
    (inbox / "data").rename(inbox / "archive/data")
    turn(inbox / "data", "archive/data")
    write(inbox / "data/b.csv")
    assert new(source, "**/*.csv", read) == ["archive/data/b.csv"]
    write(inbox / "data/a.csv", "id\n1\n2\n")
    assert new(source, "**/*.csv", read) == ["archive/data/b.csv", "data/a.csv"]  # changed, so that append stops
    assert [*stamps(source, "**/*.csv")] == ["archive/data/a.csv", "archive/data/b.csv"]
