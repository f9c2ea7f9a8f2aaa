"""When a table is due for maintenance, and who can rewrite its files. Pure functions, which plans use too."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

from flowctl.connectors.delta.features import NESTED_NOT_NULL
from flowctl.connectors.lake.small_files import MANY, SMALL
from flowctl.model.table_info import Column, TableInfo

if TYPE_CHECKING:
    from arro3.core import RecordBatch

#: Rows that deletion vectors hide are still read: the number and the share of all rows above which they are purged.
MANY_HIDDEN, HIDDEN_SHARE = 100_000, 0.1
#: Each commit is read again until a checkpoint includes it. Delta and flowctl write one every ten commits.
LONG_LOG = 100
#: Keys in ``extra`` of a table's description.
SMALL_FILES, HIDDEN_ROWS, COMMITS = "small_files", "hidden_rows", "commits_since_checkpoint"
_PARTITION = "partition."


def count_small_files(actions: RecordBatch) -> int:
    """By how many files a table could shrink, from its flattened ``add`` actions. Files of different partitions cannot
    be merged."""
    sizes = actions["size_bytes"].to_pylist()
    small = [at for at, size in enumerate(sizes) if size < SMALL]
    if len(small) <= MANY:
        return max(len(small) - 1, 0)
    names = [name for name in actions.schema.names if name.startswith(_PARTITION)]
    values = [actions[name].to_pylist() for name in names]
    return len(small) - len({tuple(of[at] for of in values) for at in small})


@dataclass(frozen=True)
class Condition:
    """The state of one version. ``small``: by how many files it could shrink; ``hidden`` of its ``rows`` are read and
    skipped; ``commits`` follow its last checkpoint. 0: unknown."""

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
        """Why maintenance is due, as text."""
        if self.small > MANY:
            yield f"{self.small:,} small files"
        if self.hidden > max(MANY_HIDDEN, self.rows * HIDDEN_SHARE):
            yield f"{self.hidden:,} of {self.rows:,} rows hidden"
        if self.needs_checkpoint:
            yield f"{self.commits:,} commits since the last checkpoint"


def due(info: TableInfo) -> str:
    """From what a plan knows; empty if nothing is due."""
    small, hidden, commits = (int(info.extra.get(name, 0)) for name in (SMALL_FILES, HIDDEN_ROWS, COMMITS))
    return ", ".join(Condition(small, hidden, info.rows.value or 0, commits).reasons())


class Way(Enum):
    """Who rewrites a table's files."""

    FLOWCTL = "flowctl"
    SPARK = "Spark's OPTIMIZE"
    NOBODY = "nobody"


@dataclass(frozen=True)
class Choice:
    """``reason``: why flowctl does not do it."""

    way: Way
    reason: str = ""


#: Features that require nothing of a commit that changes no data.
_BY_FLOWCTL = frozenset(
    {
        "appendOnly", "invariants", "checkConstraints", "generatedColumns", "identityColumns", "allowColumnDefaults",
        "changeDataFeed", "deletionVectors", "timestampNtz", "typeWidening", "typeWidening-preview", "domainMetadata",
        "vacuumProtocolCheck", NESTED_NOT_NULL,
    }
)  # fmt: skip
#: Features whose files only Spark writes correctly; the log is read as for any other table.
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
