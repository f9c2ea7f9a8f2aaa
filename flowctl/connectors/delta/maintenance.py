"""When a table is due for maintenance, and who can write its files again. Pure: a plan asks it, too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from flowctl.connectors.delta.features import NESTED_NOT_NULL
from flowctl.model.table_info import Column, TableInfo

if TYPE_CHECKING:
    from arro3.core import RecordBatch

#: OPTIMIZE makes files of some hundred megabytes. 2,000 small ones cost each merge 5 s: opening one takes as long as
#: reading some megabytes.
SMALL, MANY = 32 << 20, 500
#: Rows that deletion vectors hide are read each time: from so many on, and from so large a part of all.
MANY_HIDDEN, HIDDEN_SHARE = 100_000, 0.1
#: Each commit is read again until a checkpoint holds it. Delta and flowctl make one at each tenth.
LONG_LOG = 100
#: Names in ``extra`` of a table's description.
SMALL_FILES, HIDDEN_ROWS, COMMITS = "small_files", "hidden_rows", "commits_since_checkpoint"
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


@dataclass(frozen=True)
class Condition:
    """Of one version. ``small``: how many files fewer it could have; ``hidden`` of its ``rows`` are read and left out;
    ``commits`` lie in the log since its last checkpoint. 0: unknown."""

    small: int = 0
    hidden: int = 0
    rows: int = 0
    commits: int = 0

    @property
    def needs_compaction(self) -> bool:
        return self.small > MANY or self.hidden > max(MANY_HIDDEN, self.rows * HIDDEN_SHARE)

    @property
    def needs_checkpoint(self) -> bool:
        return self.commits > LONG_LOG

    def reasons(self) -> Iterator[str]:
        """What is due, in words."""
        if self.small > MANY:
            yield f"{self.small:,} small files"
        if self.hidden > max(MANY_HIDDEN, self.rows * HIDDEN_SHARE):
            yield f"{self.hidden:,} of {self.rows:,} rows hidden"
        if self.needs_checkpoint:
            yield f"{self.commits:,} commits since the last checkpoint"


def due(info: TableInfo) -> str:
    """Of what a plan knows: empty when nothing is due."""
    small, hidden, commits = (int(info.extra.get(name, 0)) for name in (SMALL_FILES, HIDDEN_ROWS, COMMITS))
    return ", ".join(Condition(small, hidden, info.rows.value or 0, commits).reasons())


class Way(Enum):
    """Who writes a table's files again."""

    FLOWCTL = "flowctl"
    SPARK = "Spark's OPTIMIZE"
    NOBODY = "nobody"


@dataclass(frozen=True)
class Choice:
    """``reason``: why it is not flowctl."""

    way: Way
    reason: str = ""


#: Features that ask nothing of a commit by which no data changes.
_BY_FLOWCTL = frozenset(
    {
        "appendOnly", "invariants", "checkConstraints", "generatedColumns", "identityColumns", "allowColumnDefaults",
        "changeDataFeed", "deletionVectors", "timestampNtz", "typeWidening", "typeWidening-preview", "domainMetadata",
        "vacuumProtocolCheck", NESTED_NOT_NULL,
    }
)  # fmt: skip
#: Those whose files only Spark writes as they must be; the log is read as of any other table.
_BY_SPARK = frozenset(
    {"columnMapping", "clustering", "rowTracking", "variantType", "variantType-preview", "icebergCompatV1",
     "icebergCompatV2"}
)  # fmt: skip


def choose(features: Sequence[str], columns: Sequence[Column]) -> Choice:
    if unknown := sorted({*features} - _BY_FLOWCTL - _BY_SPARK):
        return Choice(Way.NOBODY, f"the Delta feature {', '.join(unknown)}")
    if demanding := sorted({*features} & _BY_SPARK):
        return Choice(Way.SPARK, f"the Delta feature {', '.join(demanding)}")
    if other := next((column for column in columns if column.as_text), None):
        return Choice(Way.SPARK, f"column {other.name} of type {other.native}")
    return Choice(Way.FLOWCTL)
