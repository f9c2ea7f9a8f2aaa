"""A file that a listing found: by which path it is read if there are several, and with which tag."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from flowctl.errors import TableError
from flowctl.model.position import FileStamp


@dataclass(frozen=True)
class Found:
    """``place`` tells whether two paths lead to one file of one folder: the path with no link to a folder in it; empty
    in a store. ``links``: whether there is one in the path, and how many. ``former``: the tag that an older flowctl
    recorded of this content; empty if it is the same."""

    stamp: FileStamp
    place: str = ""
    links: int = 0
    former: str = ""


def ways(found: Iterable[Found]) -> list[list[Found]]:
    """The paths of each file: the one without links first."""
    by_place: dict[str, list[Found]] = {}
    for one in sorted(found, key=lambda one: (one.links, one.stamp.path)):
        by_place.setdefault(one.place or one.stamp.path, []).append(one)
    return list(by_place.values())


def each_once(found: Iterable[Found], read: Mapping[str, FileStamp]) -> list[FileStamp]:
    """Each file by one path, that by which it was ``read``, or else the one without links. ``TableError`` if several
    links lead to it, and no other path does: a link that moves would make its files new ones under another path."""
    return [_stamp(paths, read) for paths in ways(found)]


def _stamp(paths: Sequence[Found], read: Mapping[str, FileStamp]) -> FileStamp:
    for one in paths:
        before = read.get(one.stamp.path)
        if before == one.stamp or (one.former and before == replace(one.stamp, tag=one.former)):
            return before
    first, *others = paths
    if others and first.links == others[0].links:
        raise TableError(
            f"{first.stamp.path} and {others[0].stamp.path} are one file: links to folders lead to it by both paths",
            hint="Name one of the folders in `from`, or remove a link",
        )
    if first.stamp.path in read:
        return first.stamp
    return next((one.stamp for one in others if _was_read(one.stamp.path, read)), first.stamp)


def _was_read(path: str, read: Mapping[str, FileStamp]) -> bool:
    """Whether the folder has moved and left a link: then the file is one that was read, and has changed. An older
    flowctl read each file by all its paths: the link may lead to another folder now, so the file is another one."""
    if (before := read.get(path)) is None:
        return False
    return not any(_is_same(before, stamp) for stamp in read.values() if stamp.path != path)


def _is_same(one: FileStamp, other: FileStamp) -> bool:
    return (one.size, one.tag, _name(one)) == (other.size, other.tag, _name(other))


def _name(stamp: FileStamp) -> str:
    return stamp.path.rpartition("/")[2]
