"""A table as one version of its log: all that a commit depends on is read from one opened table, never from two.

A read of the log before the table is opened, or through a second handle, may see another version: if another writer
commits in between, what was free is taken. So each attempt opens the table once, reads our sequence number, the live
files and the protocol of exactly that version, and commits as the version after it. If another writer commits in
between, that version is taken, and the attempt starts over.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING

from flowctl import delays
from flowctl.connectors.delta import maintenance
from flowctl.connectors.delta.actions import may_match
from flowctl.connectors.delta.features import NESTED_NOT_NULL
from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.log import FOLDER, checkpoint_hint, read_live_files
from flowctl.connectors.delta.record import creator, newest_record
from flowctl.connectors.delta.types import Action, columns_of, has_nested_not_null
from flowctl.connectors.lake import table as lake
from flowctl.connectors.lake.conditions import Condition
from flowctl.connectors.lake.record import Record
from flowctl.connectors.preconditions import check_base, foreign_target
from flowctl.errors import AccessDenied, FlowctlError, StateConflict, StoppedByPolicy, TableError, TransientError
from flowctl.model.commit import Commit
from flowctl.model.table_info import Column, ObjectName, RowEstimate, TableInfo
from flowctl.storage import access

if TYPE_CHECKING:
    from arro3.core import RecordBatch
    from deltalake import DeltaTable, Field
    from deltalake.exceptions import DeltaError
    from pyroaring import BitMap64

    from flowctl.connectors.lake.row_search import Search
    from flowctl.connectors.lake.table import Removal

RETENTION = "delta.setTransactionRetentionDuration"
OTHER_PATH = "Choose another path in `to`, or move those files away"
#: Keys in a column's metadata, and the features that they stand for, which writers must implement.
_MARKS = {
    "delta.generationExpression": "generatedColumns",
    "delta.identity.start": "identityColumns",
    "delta.invariants": "columnInvariants",
}

#: Harmless keys in a column's metadata. Any other key is a rule for its values.
_HARMLESS = {"comment", "delta.typeChanges"}


@dataclass(frozen=True)
class OpenTable:
    """All of it describes ``version``, whatever has been committed since."""

    location: TableLocation
    handle: DeltaTable

    @property
    def url(self) -> str:
        return self.location.url

    @cached_property
    def version(self) -> int:
        return int(self.handle.version())

    @cached_property
    def metadata(self) -> Action:
        """The ``metaData`` action, as a commit may repeat it."""
        metadata = self.handle.metadata()
        named = {"name": metadata.name, "description": metadata.description}
        return {
            "id": str(metadata.id),
            **{name: text for name, text in named.items() if text is not None},
            "format": {"provider": "parquet", "options": {}},
            "schemaString": self.handle.schema().to_json(),
            "partitionColumns": list(metadata.partition_columns),
            "configuration": dict(metadata.configuration),
            "createdTime": metadata.created_time,
        }

    @cached_property
    def protocol(self) -> Action:
        """The ``protocol`` action."""
        protocol = self.handle.protocol()
        named = {"readerFeatures": protocol.reader_features, "writerFeatures": protocol.writer_features}
        versions = {"minReaderVersion": protocol.min_reader_version, "minWriterVersion": protocol.min_writer_version}
        return {**versions, **{name: features for name, features in named.items() if features is not None}}

    @property
    def identity(self) -> str:
        return str(self.metadata["id"])

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return columns_of(self.metadata["schemaString"])

    @property
    def properties(self) -> Mapping[str, str]:
        properties: Mapping[str, str] = self.metadata["configuration"]
        return properties

    @cached_property
    def features(self) -> list[str]:
        return sorted(_features(self.handle))

    @property
    def partition_by(self) -> tuple[str, ...]:
        return tuple(self.metadata["partitionColumns"])

    @cached_property
    def file_count(self) -> int:
        return len(self.handle.file_uris())

    @cached_property
    def files(self) -> tuple[Action, ...]:
        """The ``add`` actions of its live files."""
        return read_live_files(self.location, self.version)

    @property
    def is_empty(self) -> bool:
        """Whether there are no rows to compare with."""
        return not self.file_count

    def info(self, object: ObjectName) -> TableInfo:
        """``identity`` is Delta's own table id: kept by RESTORE and ALTER, new for a copy. ``extra`` has
        ``partition_by``, ``properties``, ``features``, ``reader_version``, ``writer_version``, ``files`` (how many),
        ``ruled_columns`` (their values are restricted), ``is_widened`` (files may have narrower types) and what
        :mod:`.maintenance` counts."""
        protocol, actions = self.handle.protocol(), self.handle.get_add_actions(flatten=True)
        return TableInfo(
            object=object,
            columns=self.columns,
            identity=self.identity,
            version=self.version,
            rows=_rows(actions),
            extra={
                "partition_by": list(self.partition_by),
                "properties": dict(self.properties),
                "features": self.features,
                "reader_version": protocol.min_reader_version,
                "writer_version": protocol.min_writer_version,
                "files": self.file_count,
                "ruled_columns": [field.name for field in self.handle.schema().fields if _has_rules(field)],
                "is_widened": "delta.typeChanges" in self.handle.schema().to_json(),
                maintenance.SMALL_FILES: maintenance.count_small_files(actions),
                maintenance.COMMITS: self._commits_since_checkpoint(),
            },
        )

    def _commits_since_checkpoint(self) -> int:
        """According to the hint in the log; 0 for a short log, which needs none."""
        if self.version <= maintenance.LONG_LOG:
            return 0
        return self.version - checkpoint_hint(self.location)

    @property
    def creator(self) -> str:
        return creator(self.location, self.version)

    def newest(self, app: str) -> Record | None:
        """The record of the newest sequence number of ``app``."""
        if app not in self._newest:
            self._newest[app] = newest_record(self.location, self.handle, app)
        return self._newest[app]

    @cached_property
    def _newest(self) -> dict[str, Record | None]:
        return {}

    def standing(self, record: Record, base: str | None = None) -> Record | None:
        """The commit of exactly this intent, or None while its number is free. :class:`StateConflict` if the number
        belongs to another intent, or was given up (a void matches only another void); or if it is free, and the newest
        commit is not ``base``."""
        newest = self.newest(record.app_id)
        done = lake.find_standing(self.url, newest, record)
        if done is None:
            check_base(self.url, newest.commit.name if newest else "", base)
        return done

    def may_match(self, condition: Condition, file: Action) -> bool:
        return may_match(condition, file)

    def search(self, columns: tuple[Column, ...], files: Sequence[Action]) -> Search:
        from flowctl.connectors.delta.file_reader import data_file, reading
        from flowctl.connectors.lake.row_search import Search

        found = [data_file(self.location, file, self.partition_by) for file in files]
        return Search(partial(reading, self.location), found, columns)

    def remove_rows(self, search: Search, files: Sequence[Action], gone: Mapping[int, BitMap64]) -> Removal:
        from flowctl.connectors.delta.row_removal import remove_rows

        return remove_rows(search, self, files, gone)

    def check_intent(self, record: Commit) -> None:
        """Checks that the table is the intent's own: the one it was planned for, or the one it created; and that the
        table keeps which numbers were committed. :class:`StateConflict` or :class:`StoppedByPolicy` otherwise."""
        self.check_memory()
        if record.target_id and record.target_id != self.identity:
            raise StateConflict(
                f"{self.location.url} is table {self.identity} now, the plan was made for {record.target_id}",
                hint="Plan again: it was dropped and created again",
            )
        if record.target_id or self.creator == record.intent_id:
            return
        if self.standing(Record(record)) is None:
            raise foreign_target(record, self.location.url)  # else another attempt at this number was faster

    def check_memory(self) -> None:
        """:class:`StoppedByPolicy` for a table that does not keep which numbers were committed."""
        if RETENTION in self.properties:
            raise StoppedByPolicy(
                f"{self.location.url} has {RETENTION}: Delta would forget which numbers were committed",
                hint=f"ALTER TABLE … UNSET TBLPROPERTIES ('{RETENTION}')",
            )


def open_table(location: TableLocation, *, hint: str = OTHER_PATH, tries: int = 3) -> OpenTable | None:
    """The table's newest version, or None if nothing exists there. :class:`TableError` if something else does, with
    ``hint``. A log without an entry is nothing: whoever was to write the first one was killed, had no space, or is
    about to."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError, TableNotFoundError

    delays.pause()
    try:
        return OpenTable(location, DeltaTable(location.url, storage_options=location.options or None))
    except TableNotFoundError:
        there = _names_in(location) - {"_flowctl"}  # the table's lease is older than the table
        has_log = FOLDER in there and any(name[0] not in "._" for name in _names_in(location, FOLDER))
        if has_log and tries > 1:  # created in the meantime
            return open_table(location, hint=hint, tries=tries - 1)
        if has_log or there - {FOLDER}:
            raise TableError(
                f"{location.url} holds files that are not a Delta table",
                hint=hint,
            ) from None
        return None
    except (DeltaError, OSError) as error:
        raise _failure(location, error) from error


def open_version(location: TableLocation, version: int) -> OpenTable:
    """An earlier version of an existing table; :class:`TableError` if its log is no longer complete."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        return OpenTable(location, DeltaTable(location.url, version=version, storage_options=location.options or None))
    except DeltaError as error:
        what = f"version {version} of {location.url} cannot be opened: {access.in_one_line(error)}"
        raise TableError(what, hint="Choose a later version") from error


def open_existing(location: TableLocation) -> OpenTable:
    """As :func:`open_table`; :class:`TableError` if nothing exists there."""
    table = open_table(location)
    if table is None:
        raise TableError(f"there is no table {location.url}", hint="Plan again: it was dropped since the plan was made")
    return table


def _has_rules(field: Field) -> bool:
    return not field.nullable or not _HARMLESS.issuperset(field.metadata or ())


def find_standing(location: TableLocation, record: Record) -> Record | None:
    """:meth:`OpenTable.standing` of the newest version. A number that is free there may be taken a moment later, so
    this alone is no basis for a commit."""
    table = open_table(location)
    return table.standing(record) if table is not None else None


def _names_in(location: TableLocation, folder: str = "") -> set[str]:
    """What is in the table's folder, or in one of its folders."""
    url = f"{location.url.rstrip('/')}/{folder}".rstrip("/")
    try:
        paths = location.file_system().ls(url, detail=False)
    except FileNotFoundError:
        return set()
    except OSError as error:
        raise _failure(location, error) from error
    names = {str(path).rstrip("/").rpartition("/")[2] for path in paths}
    return names - {url.rpartition("/")[2], ""}


def _failure(location: TableLocation, error: DeltaError | OSError) -> FlowctlError:
    if refusal := access.refused_access(error):
        return AccessDenied(f"{location.url} refuses access: {refusal}", hint=access.HINT)
    if isinstance(error, NotADirectoryError):
        what = f"{location.url} cannot be a table: there is a file where one of its folders should be"
        return TableError(what, hint="Correct `path` of the connection, or move that file away")
    if isinstance(error, OSError) and error.filename is not None:  # a disk names it, a store does not
        what = f"{location.url} cannot be read: {error.strerror}"
        return TableError(what, hint="Check the path and its permissions")
    if isinstance(error, OSError):
        what = f"{location.url} cannot be reached: {access.in_one_line(error)}"
        return TransientError(what, hint="Check the store's address, its credentials and the network")
    what = f"{location.url}: its Delta log cannot be read: {access.in_one_line(error)}"
    return TableError(what, hint="Repair or move it")


def _features(table: DeltaTable) -> set[str]:
    """The features that the protocol names, and those that tables with older protocols have without a name (Delta
    protocol, *Valid Feature Names in Table Features*), detected by what uses them."""
    protocol, properties = table.protocol(), table.metadata().configuration
    features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    if any(name.startswith("delta.constraints.") for name in properties):
        features.add("checkConstraints")
    if properties.get("delta.columnMapping.mode", "none") != "none":
        features.add("columnMapping")
    if has_nested_not_null(table.schema().to_json()):
        features.add(NESTED_NOT_NULL)
    marks = {mark for field in table.schema().fields for mark in field.metadata or ()}
    return features | {feature for mark, feature in _MARKS.items() if mark in marks}


def _rows(actions: RecordBatch) -> RowEstimate:
    """From the files' statistics, including rows that deletion vectors hide. Without pyarrow: a run with nothing to do
    would import it, and pandas with it, for two sums."""
    size = sum(actions["size_bytes"].to_pylist())
    counted = actions["num_records"].to_pylist()
    return RowEstimate(bytes=size) if None in counted else RowEstimate(sum(counted), "stats", size)
