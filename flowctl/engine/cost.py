"""The cost model: whether an engine is worthwhile, how large it is, and into how many parts a read is split.

Pure functions of estimates. Each threshold is defined here once, with the measurement behind it (on two cores;
``bench/NOTES.md`` describes how they were measured); the plan shows each choice. A table's *load* is its number of rows
in play, converted to rows of average width: 60,000 rows of 500 columns are as much work as two million of sixteen.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Literal

from flowctl.model.table_info import RowEstimate, TableInfo

#: ``small`` starts fast, ``large`` runs fast. ``medium`` is for about 100,000 to a few million rows, and for unknown
#: numbers: compiled queries, with the quick compiler (C1). The demo's 370,000 rows in six tables take 76 s of CPU time
#: with it, 120 s with ``large``; ``small`` interprets each row and takes longest.
Size = Literal["small", "medium", "large"]

#: From the first load on, compiled queries pay off for a run; from the second, the optimizing compiler and a parallel
#: garbage collector do.
MEDIUM_LOAD = 100_000
LARGE_LOAD = 2_000_000
#: Below this load, a table's queries take longer to compile than to interpret, however warm the JVM is.
INTERPRETED_LOAD = 25_000
#: Columns and bytes of a row of average width.
_COLUMNS, _BYTES = 16, 100
#: A row of the target costs this many times less than one of the batch: most files are skipped, most columns not read.
_TARGET_SHARE = {"merge": 50, "scd2": 10}

#: The largest batch (Arrow bytes) that this process holds without an engine.
IN_MEMORY_BYTES = 16 << 20
#: Rows that comparing keys may add to a batch in memory without moving it to the engine, however long they are.
IN_MEMORY_EXTRA_ROWS = 1_000
#: Up to this many staged rows are counted by this process: in a JVM's first seconds, a query takes longer.
COUNTED_ROWS = 1_000_000

#: In an object store, Spark copies what it has written once more, to rename it: from this many rows on, that takes
#: longer than Delta's own statement, which copies nothing.
COPIED_ROWS = 1_000_000
#: The largest batch (rows x columns) whose keys this process looks up in a Delta table: half a million rows of average
#: width. Merging 15,000 rows into 1.5 million takes 10.7 s this way, and 13.2 s with the engine's queries, in a cold
#: JVM.
SEARCHED_VALUES = 8_000_000
#: If Spark runs on other machines, it looks up keys in tables larger than this: each machine reads as fast as this one.
SEARCHED_BYTES = 1 << 30
#: Up to this many files, this process reads a Delta log faster than Spark compiles queries for it; Spark reads longer
#: logs.
SHORT_LOG_FILES = 10_000

#: Tables run in parallel without ``--parallel``: on an average machine, more would wait for each other's jobs.
_TABLES_AT_ONCE = 4

#: A range of a database table is worth a task from the first size on, and none should be much larger than the second:
#: 128 MiB take one connection some seconds.
SMALL_RANGE_BYTES, LARGE_RANGE_BYTES = 8 << 20, 128 << 20
#: Ranges of a table that is not large: as many connections as an average database can easily spare.
_RANGES_AT_ONCE = 8

#: How Spark splits files: the largest piece in bytes, and the cost of opening a file, as bytes read.
_MOST_FILE_BYTES, FILE_OPENING_BYTES = 128 << 20, 4 << 20


def batch_rows(planned: RowEstimate, source: TableInfo | None) -> int | None:
    """The plan's estimate of a batch; if it has none, the rows of the source. None if both are unknown."""
    of_source = source.rows.value if source is not None else None
    return of_source if planned.value is None else planned.value


def load_of(rows: RowEstimate, columns: int) -> int | None:
    """The load of ``rows``; estimated from bytes if the rows are not counted, as in files and new PostgreSQL tables.
    None if both are unknown."""
    if rows.value is not None:
        return rows.value * max(columns, _COLUMNS) // _COLUMNS
    return rows.bytes // _BYTES if rows.bytes is not None else None


def in_play(batch: int | None, target: int | None, mode: str) -> int | None:
    """The batch's rows (or load), plus a share of the target's for merge and scd2; None if unknown."""
    if batch is None or target is None or mode not in _TARGET_SHARE:
        return batch
    return batch + target // _TARGET_SHARE[mode]


def size_of_run(loads: Iterable[int | None]) -> Size:
    """The size for the sum of the tables' loads; ``medium`` if some are unknown and the known ones are small."""
    all_loads = list(loads)
    known = sum(load for load in all_loads if load is not None)
    if known >= LARGE_LOAD:
        return "large"
    return "small" if None not in all_loads and known < MEDIUM_LOAD else "medium"


def is_interpreted(load: int | None) -> bool:
    """Whether a table's queries are not worth compiling."""
    return load is not None and load < INTERPRETED_LOAD


def tables_at_once() -> int:
    return min(_TABLES_AT_ONCE, max(2, os.cpu_count() or 1))


def range_count(size: int) -> int:
    """The number of ranges in which a table of ``size`` bytes is read: up to eight of at least 8 MiB each, then one
    for each 128 MiB."""
    return max(1, min(_RANGES_AT_ONCE, size // SMALL_RANGE_BYTES), -(-size // LARGE_RANGE_BYTES))


def piece_bytes(total: int) -> int:
    """The size of the pieces into which Spark splits files of ``total`` bytes: enough pieces for all cores, none so
    small that opening it costs more than reading it."""
    return min(_MOST_FILE_BYTES, max(FILE_OPENING_BYTES, total // (os.cpu_count() or 1)))
