"""The cost model: what is worth an engine, how large a one, and into how many parts a read is cut.

Pure functions of estimates. Each threshold is named here once, with the figure behind it (two cores; how they were
measured is in ``bench/NOTES.md``); the plan shows each choice. A table's *load* is its rows in play, as rows of usual
width: 60,000 rows of 500 columns are as much work as two million of sixteen.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Literal

from flowctl.model.table_info import RowEstimate

#: ``small`` starts fast, ``large`` runs fast. ``medium`` is for some 100,000 to some million rows, and for plans that
#: do not know: compiled queries, by the quick compiler. The demo's 370,000 rows in six tables take 76 s of processor
#: time with it, 120 s with ``large``; ``small`` interprets each row and takes longest.
Size = Literal["small", "medium", "large"]

#: From so much load on, compiled queries pay for a run; from so much, an optimising compiler and throughput do.
MEDIUM_LOAD = 100_000
LARGE_LOAD = 2_000_000
#: Below so much a table's queries take longer to compile than to interpret, however warm the JVM is.
INTERPRETED_LOAD = 25_000
#: Columns and bytes of a row of usual width.
_COLUMNS, _BYTES = 16, 100
#: A row of the target costs less than one of the batch: most files are skipped, most columns not read.
_TARGET_SHARE = {"merge": 50, "scd2": 10}

#: As much of a batch, as Arrow has it, as this process holds without an engine.
IN_MEMORY_BYTES = 16 << 20
#: Rows that comparing keys may add to a batch in memory, which then fits as well, however long they are.
IN_MEMORY_EXTRA_ROWS = 1_000
#: Up to so many staged rows this process counts itself: in a JVM's first seconds a query takes longer.
COUNTED_ROWS = 1_000_000

#: What Spark writes to an object store it copies there once more, to name it: from so many rows on, that takes longer
#: than Delta's own statement, which copies nothing.
COPIED_ROWS = 1_000_000
#: Values (rows x columns) of a batch whose keys this process looks for in a Delta table: half a million rows of usual
#: width. 15,000 rows into 1.5 million take 10.7 s so, and 13.2 s with the engine's queries, in a cold JVM.
SEARCHED_VALUES = 8_000_000
#: Where Spark works on other machines, it looks for keys in larger tables: each of them reads as fast as this one.
SEARCHED_BYTES = 1 << 30
#: Files of a Delta table whose log is read faster than Spark compiles queries for it; a longer log is Spark's to read.
SHORT_LOG_FILES = 10_000

#: Tables at once, without ``--parallel``: more wait for each other's jobs on a machine of usual size.
_TABLES_AT_ONCE = 4

#: A range of a database's table is worth a task from the first size on, and none should be much longer than the
#: second: 128 MiB are some seconds of one connection's work.
SMALL_RANGE_BYTES, LARGE_RANGE_BYTES = 8 << 20, 128 << 20
#: Ranges of a table that is not large: as many connections as a database of usual size lends without a thought.
_RANGES_AT_ONCE = 8

#: How Spark cuts files: pieces of at most so many bytes, and what opening a file costs, as bytes read.
_MOST_FILE_BYTES, FILE_OPENING_BYTES = 128 << 20, 4 << 20


def load_of(rows: RowEstimate, columns: int) -> int | None:
    """By bytes where the rows have not been counted yet, as in files and in new tables of PostgreSQL."""
    if rows.value is not None:
        return rows.value * max(columns, _COLUMNS) // _COLUMNS
    return rows.bytes // _BYTES if rows.bytes is not None else None


def in_play(batch: int | None, target: int | None, mode: str) -> int | None:
    """The batch's rows (or load), and for merge and scd2 a share of the target's; None when nobody knows."""
    if batch is None or target is None or mode not in _TARGET_SHARE:
        return batch
    return batch + target // _TARGET_SHARE[mode]


def size_of_run(loads: Iterable[int | None]) -> Size:
    """By the sum of the tables' loads; ``medium`` when some are unknown and the known ones are small."""
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
    """Into how many ranges a table of ``size`` bytes is read: up to eight as soon as each has some megabytes, then one
    for each 128 MiB."""
    return max(1, min(_RANGES_AT_ONCE, size // SMALL_RANGE_BYTES), -(-size // LARGE_RANGE_BYTES))


def piece_bytes(total: int) -> int:
    """As Spark cuts files of ``total`` bytes: enough pieces for all cores, none so small that opening it costs more
    than reading it."""
    return min(_MOST_FILE_BYTES, max(FILE_OPENING_BYTES, total // (os.cpu_count() or 1)))
