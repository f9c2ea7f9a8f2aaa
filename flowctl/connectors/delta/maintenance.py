"""When a table has so many small files that reading them costs more than their rows do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowctl.model.table_info import TableInfo

if TYPE_CHECKING:
    from arro3.core import RecordBatch

#: OPTIMIZE makes files of some hundred megabytes. 2,000 small ones cost each merge 5 s: opening one takes as long as
#: reading some megabytes.
SMALL, MANY = 32 << 20, 500
SMALL_FILES = "small_files"
_PARTITION = "partition."


def count_small_files(actions: RecordBatch) -> int:
    """Of a table's ``add`` actions, flattened: how many files fewer it could have. Files of different partitions cannot
    become one."""
    sizes = actions["size_bytes"].to_pylist()
    small = [at for at, size in enumerate(sizes) if size < SMALL]
    if len(small) <= MANY:
        return max(len(small) - 1, 0)
    names = [name for name in actions.schema.names if name.startswith(_PARTITION)]
    values = [actions[name].to_pylist() for name in names]
    return len(small) - len({tuple(of[at] for of in values) for at in small})


def due(info: TableInfo) -> str:
    small = int(info.extra.get(SMALL_FILES, 0))
    if small <= MANY:
        return ""
    return (
        f"due for maintenance: {small:,} small files. Run OPTIMIZE with your own engine while no run writes the table"
    )
