"""The validated spec as frozen values. Everything that an error may refer to keeps its place in the file."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from flowctl.diagnostics import Mark
from flowctl.expect.expectation import Expectation
from flowctl.model.mode import Mode
from flowctl.model.position import OffsetsPosition
from flowctl.model.table_info import ObjectName
from flowctl.spec.files_layout import FilesLayout
from flowctl.spec.topic_layout import TopicCreation, TopicLayout

#: What defines a connection, the first place first: `--connection`, `FLOWCTL_CONN_NAME`, the spec with its includes,
#: the user's `connections.yaml`.
Origin = Literal["option", "variable", "spec", "user_file"]


@dataclass(frozen=True)
class Connection:
    """``options`` holds the fragment's keys as written, with :class:`SecretText` where a secret stands."""

    name: str
    type: str
    options: Mapping[str, Any]
    mark: Mark
    origin: Origin = "spec"


@dataclass(frozen=True)
class ObjectSource:
    """``connection:object``. ``parts`` are the dotted parts (or the one path); ``is_glob`` when a plain part has
    ``*`` or ``?``. Case is kept."""

    connection: str
    parts: tuple[str, ...]
    is_glob: bool = False

    def __str__(self) -> str:
        return f"{self.connection}:{'.'.join(self.parts)}"


@dataclass(frozen=True)
class StreamTable(ObjectSource):
    """``stream:object``: an object of a connection, read through the change stream ``stream`` of that connection."""

    stream: str = ""

    def __str__(self) -> str:
        return f"{self.stream}:{'.'.join(self.parts)}"


@dataclass(frozen=True)
class TopicSource(ObjectSource):
    """``connection:topic``. ``start`` is where the first run begins: `earliest`, `latest`, an RFC 3339 time, or the
    offsets of some partitions. ``group`` is the consumer group that shows monitors how far the table has come; empty:
    none."""

    start: str | OffsetsPosition = "earliest"
    group: str = ""


@dataclass(frozen=True)
class QuerySource:
    """A query in the source's own SQL, bounded by wrapping it."""

    connection: str
    query: str

    def __str__(self) -> str:
        return f"{self.connection}:(query)"


@dataclass(frozen=True)
class SqlSource:
    """Spark SQL over other tables of the flow. In ``sql`` each ``ref('id')`` has become the marker
    ``{{ref:id}}``; ``refs`` lists the ids, sorted."""

    sql: str
    refs: tuple[str, ...]

    def __str__(self) -> str:
        return "sql over " + ", ".join(self.refs) if self.refs else "sql"


Source = ObjectSource | StreamTable | TopicSource | QuerySource | SqlSource


@dataclass(frozen=True)
class TargetRef:
    connection: str
    parts: tuple[str, ...]

    @property
    def object(self) -> ObjectName:
        return ObjectName(self.parts)

    def __str__(self) -> str:
        return f"{self.connection}:{'.'.join(self.parts)}"


@dataclass(frozen=True)
class Cursor:
    """Durations in seconds. ``start`` is text, read as the column's type once that is known. ``zone`` is the
    time zone of ``delay`` if the column has none of its own."""

    column: str
    start: str | None = None
    lag: float = 0.0
    delay: float | None = None
    nulls: Literal["fail", "always", "skip"] = "fail"
    zone: str | None = None


@dataclass(frozen=True)
class DetectMissingKeys:
    every: float | None = None
    action: Literal["soft", "hard"] = "soft"


@dataclass(frozen=True)
class DetectFlag:
    column: str
    values: tuple[Any, ...] = (True,)
    action: Literal["soft", "hard"] = "soft"


@dataclass(frozen=True)
class ReportedDeletes:
    """A change stream reports deletions by itself."""

    action: Literal["soft", "hard"] = "hard"


Deletes = DetectMissingKeys | DetectFlag | ReportedDeletes

#: Columns about the change that a table of a stream appends.
Metadata = Literal["op", "commit_lsn", "seq", "committed_at", "xid", "unchanged"]


@dataclass(frozen=True)
class ColumnRules:
    """Source names on the left of every map. ``types`` values are type texts, ``add`` values Spark SQL."""

    include: tuple[str, ...] | None = None
    exclude: tuple[str, ...] = ()
    rename: Mapping[str, str] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)
    mask: Mapping[str, str] = field(default_factory=dict)
    add: Mapping[str, str] = field(default_factory=dict)

    def takes(self, name: str) -> bool:
        """Whether the source's column of this name is written."""
        return (self.include is None or name in self.include) and name not in self.exclude


@dataclass(frozen=True)
class ReadHints:
    splits: int | None = None
    split_by: str = "auto"
    fetch_size: int = 20000


@dataclass(frozen=True)
class Layout:
    """``statistics`` are the target columns whose minimum and maximum each file of a new table stores; None leaves that
    to the target. A table's spec always sets it: :func:`flowctl.spec.build.table` fills in the default."""

    partition_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()
    deletion_vectors: bool = True
    statistics: tuple[str, ...] | None = None
    topic: TopicLayout = TopicLayout()
    files: FilesLayout = FilesLayout()


@dataclass(frozen=True)
class Guard:
    """Fractions of 1, None where not set (``max_deleted`` then falls back to 0.1 if deletes are detected).
    ``allow_empty`` None: allowed where all content is replaced, but not for missing keys."""

    allow_empty: bool | None = None
    max_shrink: float | None = None
    max_deleted: float | None = None
    max_quarantined: float | None = None
    allow_purged: bool = False

    @property
    def allows_deleting_all(self) -> bool:
        """Whether missing keys may delete every row of the target."""
        return self.allow_empty is True and self.max_deleted is not None and self.max_deleted >= 1


@dataclass(frozen=True)
class DeadLetters:
    """Messages that cannot be decoded or fail a check become dead letters. ``max_fraction``: of a commit's messages, as
    a fraction of 1; None: any number. ``to`` is where they are kept; None: beside the target. ``create``: how a missing
    topic for them is created; None: it must exist."""

    max_fraction: float | None = None
    to: TargetRef | None = None
    create: TopicCreation | None = None

    @property
    def layout(self) -> Layout:
        """Of what ``to`` names."""
        return Layout(topic=TopicLayout(create=self.create))


@dataclass(frozen=True)
class SchemaPolicies:
    new_column: Literal["add", "ignore", "fail"] = "add"
    wider_type: Literal["widen", "fail"] = "widen"
    other_type: Literal["fail", "text"] = "fail"
    dropped_column: Literal["keep", "fail", "null"] = "keep"
    nullable: Literal["relax", "fail"] = "relax"
    unsent: Literal["note", "resnapshot", "fail"] = "note"


@dataclass(frozen=True)
class TableSpec:
    """One entry of ``tables``. With ``${…}`` in ``id`` it is a pattern: one table per match of its source.

    Without ``dedupe`` the latest row of a key counts. ``valid_from`` None: in a history, the times of the source's
    commits, or of messages. ``batch_rows``: how many messages of a topic one commit takes at most (None: the target
    decides). ``every`` is in seconds (None: not followed). ``marks`` gives the place of each written key by dotted path
    (``cursor.column``); ``mark`` is the entry's own.
    """

    id: str
    source: Source
    target: TargetRef
    mode: Mode
    mark: Mark
    key: tuple[str, ...] = ()
    cursor: Cursor | None = None
    dedupe: Literal["latest", "fail"] | None = None
    deletes: Deletes | None = None
    compare_ignore: tuple[str, ...] = ()
    columns: ColumnRules = ColumnRules()
    where: str | None = None
    read: ReadHints = ReadHints()
    layout: Layout = Layout()
    expect: tuple[Expectation, ...] = ()
    guard: Guard = Guard()
    dead_letters: DeadLetters | None = None
    batch_rows: int | None = None
    valid_from: str | None = None
    format: Mapping[str, Any] = field(default_factory=dict)
    exclude: tuple[str, ...] = ()
    include_views: bool = False
    allow_none: bool = False
    metadata: tuple[Metadata, ...] = ()
    on_schema_change: SchemaPolicies = SchemaPolicies()
    on_error: Literal["continue", "stop"] = "continue"
    every: float | None = None
    marks: Mapping[str, Mark] = field(default_factory=dict)

    @property
    def connections(self) -> tuple[str, ...]:
        """Names: the source's, which a table by SQL does not have, and those of what is written."""
        source = () if isinstance(self.source, SqlSource) else (self.source.connection,)
        return tuple(dict.fromkeys((*source, *(to.connection for to in self.written.values()))))

    @property
    def written(self) -> Mapping[str, TargetRef]:
        """The target, and the place that is named for dead letters, by the path in the spec."""
        letters = self.dead_letters.to if self.dead_letters is not None else None
        return {"to": self.target, **({"dead_letters.to": letters} if letters is not None else {})}

    @property
    def has_source_order(self) -> bool:
        """Whether changes are applied by their order in the source, and older ones ignored."""
        return self.format.get("source_order") is True

    @property
    def reads_letters_again(self) -> bool:
        """Whether its dead letters can be read again: none overwrites what came after it."""
        return self.dead_letters is not None and (self.mode == "append" or self.has_source_order)

    @property
    def keeps_bad_rows(self) -> bool:
        """Whether rows of files that cannot be read go to quarantine."""
        return self.format.get("on_fail") == "quarantine"

    @property
    def quarantines(self) -> bool:
        """Whether single rows may be rejected: by a check, or because they cannot be read."""
        return self.keeps_bad_rows or any(check.on_fail == "quarantine" for check in self.expect)

    def mark_of(self, path: str) -> Mark:
        """The place of ``path``, or of the nearest parent that was written."""
        while path and path not in self.marks:
            path = path.rpartition(".")[0]
        return self.marks.get(path, self.mark)


def stream_of(table: TableSpec) -> str:
    """The name of the stream that the table reads; empty if it reads none."""
    return table.source.stream if isinstance(table.source, StreamTable) else ""


@dataclass(frozen=True)
class StreamSpec:
    """One entry of ``streams``. Times in seconds, sizes in bytes. ``options`` belong to the connection's type; ``flow``
    and ``name`` are what default names are made of. ``snapshot_from`` names the connection of a standby from which
    tables are read in full; empty: ``connection``. ``landed`` is the folder of another flow's stream that captures the
    changes; empty: this one does. ``heartbeat``: when nothing has landed for so long, the source's log gets a message.
    ``marks`` as in :class:`TableSpec`."""

    name: str
    flow: str
    connection: str
    mark: Mark
    snapshot: Literal["initial", "never"] = "initial"
    snapshot_from: str = ""
    landed: str = ""
    on_lost_position: Literal["fail", "resnapshot"] = "fail"
    on_table_error: Literal["stop", "detach"] = "stop"
    on_truncate: Literal["apply", "fail", "ignore"] = "apply"
    every: float = 10.0
    batch_rows: int = 500_000
    batch_bytes: int = 256_000_000
    keep: float = 86_400.0
    max_bytes: int = 20_000_000_000
    heartbeat: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    marks: Mapping[str, Mark] = field(default_factory=dict)

    @property
    def identifying(self) -> Mapping[str, Any]:
        """What names its reader in the source, as state records it."""
        return {**self.options, "landed": self.landed} if self.landed else self.options


@dataclass(frozen=True)
class StateLocation:
    url: str
    unsafe: bool = False


@dataclass(frozen=True)
class SparkSettings:
    url: str = "local[*]"
    conf: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Spec:
    """A whole flow. ``storage`` maps URL prefixes to credentials (option values may be :class:`SecretText`).
    ``tables`` keeps the order of the file. ``digest`` is over the canonical JSON of the resolved spec: variables
    filled in, secrets as references or hidden, no places. ``given`` are those of ``variables`` that the command line
    has set, ``given_connections`` what it has given by ``--connection``, with secrets hidden; ``marks`` gives the
    places of what is written outside of tables, by dotted path (``connections.lake.path``)."""

    flow: str
    state: StateLocation
    connections: Mapping[str, Connection]
    storage: Mapping[str, Mapping[str, Any]]
    spark: SparkSettings
    tables: tuple[TableSpec, ...]
    digest: str
    path: str
    variables: Mapping[str, str] = field(default_factory=dict)
    given: Mapping[str, str] = field(default_factory=dict)
    given_connections: Mapping[str, str] = field(default_factory=dict)
    marks: Mapping[str, Mark] = field(default_factory=dict)
    streams: Mapping[str, StreamSpec] = field(default_factory=dict)

    @cached_property
    def base_dir(self) -> str:
        """The folder that relative paths of connections and ``state`` start from: that of the spec file."""
        return str(Path(self.path).absolute().parent)

    @property
    def argument(self) -> str:
        """The spec as printed commands name it: its path, and the variables and connections it was read with."""
        options = {"--var": self.given, "--connection": self.given_connections}
        given = ((option, f"{name}={value}") for option, pairs in options.items() for name, value in pairs.items())
        return shlex.join([self.path, *(word for pair in given for word in pair)])
