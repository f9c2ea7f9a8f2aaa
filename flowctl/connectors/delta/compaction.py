"""Merges small files into large ones and purges rows that deletion vectors hide: other files, the same rows.

``deltalake`` is not used: it refuses tables with type widening, leaves hidden rows in large files, and does not sync
its entries to a local disk. Like every commit of flowctl's own, an entry is created only as the version right after the
opened one. A writer that works from an older version has then read files that no longer belong to the table, and starts
over (tested: Spark's MERGE, and flowctl's own). If another writer commits first, this entry fails and the files are
chosen again. The entries are marked as not changing data, so readers of changes skip them.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from flowctl import crashpoints
from flowctl.connectors.arrow import arrow_schema
from flowctl.connectors.delta import actions, commit, data_files
from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.table import OpenTable, open_existing
from flowctl.connectors.delta.types import Action
from flowctl.connectors.lake.small_files import SMALL
from flowctl.errors import TableError, TransientError

if TYPE_CHECKING:
    import pyarrow as pa

    from flowctl.connectors.lake.row_search import Search

#: Bytes of a compacted file, which is held in memory while it is written.
TARGET = 128 << 20
#: A file with a larger share of hidden rows is rewritten without them, as Spark's OPTIMIZE does.
_HIDDEN_SHARE = 0.05
#: Groups of files that one entry replaces: the work lost to a kill or to another writer's commit.
_GROUPS = 8
#: Rows of a row group, and files read at the same time.
_ROWS, _READERS = 1 << 17, 8
_TRIES = 10


def groups(files: Sequence[Action]) -> list[list[int]]:
    """Returns which files to rewrite, as groups of their indexes; a group's files are merged. These are small files of
    one partition, up to :data:`TARGET` bytes per group, in the order of the log, and files with many hidden rows."""
    by_partition: dict[str, list[list[int]]] = defaultdict(lambda: [[]])
    sizes: dict[str, int] = defaultdict(int)  # of the last group of each partition
    for at, file in enumerate(files):
        if file["size"] >= SMALL and not _has_many_hidden(file):
            continue
        partition = json.dumps(file["partitionValues"], sort_keys=True)
        found = by_partition[partition]
        if found[-1] and sizes[partition] + file["size"] > TARGET:
            found.append([])
            sizes[partition] = 0
        found[-1].append(at)
        sizes[partition] += file["size"]
    return [
        group
        for found in by_partition.values()
        for group in found
        if len(group) > 1 or any(_has_many_hidden(files[at]) for at in group)
    ]


def _has_many_hidden(file: Action) -> bool:
    hidden, rows = actions.hidden_rows(file), actions.known_rows(file)
    return hidden > 0 and (rows is None or hidden > rows * _HIDDEN_SHARE)


def compact(location: TableLocation, check: Callable[[OpenTable], None], before_commit: Callable[[], None]) -> None:
    """Rewrites the files that :func:`groups` chooses until it chooses none. ``check`` raises if flowctl may not rewrite
    the opened version; ``before_commit`` is called before each entry, and may raise."""
    lost = 0
    while True:
        table = open_existing(location)
        check(table)
        chosen = groups(table.files)[:_GROUPS]
        if not chosen:
            return
        if not _replace(table, chosen, before_commit):
            lost += 1
        if lost == _TRIES:
            raise TransientError(f"{location.url} is written by others too fast to be compacted")


def _replace(table: OpenTable, chosen: Sequence[Sequence[int]], before_commit: Callable[[], None]) -> bool:
    """Commits one entry; False if another writer has committed since the table was opened."""
    files = table.files
    search = table.search(table.columns, files)
    added = [add for group in chosen for add in _write_again(table, search, group)]
    removed = [actions.remove(files[at])["remove"] for group in chosen for at in group]
    metrics = {"numAddedFiles": str(len(added)), "numRemovedFiles": str(len(removed))}
    content = [
        actions.commit_info("", "OPTIMIZE", {"predicate": "[]"}, metrics),
        *({"remove": {**file, "dataChange": False}} for file in removed),
        *({"add": {**file, "dataChange": False}} for file in added),
    ]
    before_commit()
    name = table.location.url.rpartition("/")[2]
    crashpoints.reached("in_commit", name)
    committed = commit.publish(table.location, table.version + 1, content)
    crashpoints.reached("after_commit", name)
    return committed


def _write_again(table: OpenTable, search: Search, group: Sequence[int]) -> Iterator[Action]:
    """Writes the live rows of a group into new files and yields their ``add`` actions."""
    files = [table.files[at] for at in group]
    values: Mapping[str, Any] = files[0]["partitionValues"]
    folder = files[0]["path"].rpartition("/")[0]  # Polars needs the partition's name in the paths of all files or none
    schema = arrow_schema([column for column in search.columns if column.name not in values])
    rows, size = [actions.known_rows(file) for file in files], sum(file["size"] for file in files)
    expected = sum(count or 0 for count in rows) - sum(map(actions.hidden_rows, files))
    most = expected if size <= TARGET else max(expected * TARGET // size, _ROWS)
    written, pieces = 0, _pieces(search, table.files, group)
    for first in pieces:
        some = _up_to(first, pieces, most)
        add = data_files.write_groups(table.location, table.metadata, schema, some, folder)
        if add is not None:
            written += actions.row_count(add)
            yield {**add, "partitionValues": values}
    if None not in rows and written != expected:
        raise TableError(
            f"{table.location.url}: files of {expected:,} rows, as the log counts them, have {written:,}",
            hint="Compare the table with its source, then report this with --verbose",
        )


def _up_to(first: pa.Table, more: Iterator[pa.Table], rows: int) -> Iterator[pa.Table]:
    yield first
    taken = first.num_rows
    while taken < rows and (piece := next(more, None)) is not None:
        yield piece
        taken += piece.num_rows


def _pieces(search: Search, files: Sequence[Action], group: Sequence[int]) -> Iterator[pa.Table]:
    """The live rows of the files, in their order, as row groups of the usual size."""
    import pyarrow as pa

    held: list[pa.Table] = []
    rows = 0
    for piece in _live_rows(search, files, group):
        held.append(piece)
        rows += piece.num_rows
        if rows >= _ROWS:
            yield pa.concat_tables(held)
            held, rows = [], 0
    if held:
        yield pa.concat_tables(held)


def _live_rows(search: Search, files: Sequence[Action], group: Sequence[int]) -> Iterator[pa.Table]:
    """Reads several small files at the same time, a large one piece by piece."""
    from pyroaring import BitMap64

    read = partial(search.other_rows, gone=BitMap64())
    with ThreadPoolExecutor(_READERS) as pool:
        for some in _read_at_once(files, group):
            if len(some) == 1:
                yield from read(some[0])
            else:
                yield from chain.from_iterable(pool.map(lambda at: list(read(at)), some))


def _read_at_once(files: Sequence[Action], group: Sequence[int]) -> Iterator[list[int]]:
    """Files to read at the same time, together no larger than one small file, as all are held in memory."""
    held: list[int] = []
    for at in group:
        if held and (len(held) == _READERS or sum(files[one]["size"] for one in (*held, at)) > SMALL):
            yield held
            held = []
        held.append(at)
    yield held
