"""PostgreSQL as a direct source: metadata through psycopg, rows through Spark in one snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from flowctl.connectors import refusal
from flowctl.connectors.base import Capabilities
from flowctl.connectors.postgres import catalog, foreign, watermarks
from flowctl.connectors.postgres.client import NOT_POPULATED, REFRESH, Client
from flowctl.connectors.postgres.details import details
from flowctl.connectors.postgres.reading import HeldRelation, PostgresSnapshot, error_of_read, way_of_reading
from flowctl.connectors.postgres.snapshot import PAGED_KINDS, HeldSnapshot, hold_snapshot
from flowctl.connectors.postgres.undecoded import HeldCopies, refuse_altered
from flowctl.connectors.source import DirectSource, HighWatermark, Missing, Relation, WatermarkRequest
from flowctl.connectors.sql.conditions import bare_query
from flowctl.connectors.sql.parts import explain_splitting
from flowctl.connectors.sql.source import described, missing_table
from flowctl.connectors.survey import Details
from flowctl.engine.session import has_jvm
from flowctl.errors import StoppedByPolicy
from flowctl.model.table_info import ObjectName, TableInfo
from flowctl.spec.spec import ReadHints
from flowctl.storage.buffer import Buffer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class PostgresSource(DirectSource):
    """A table's identity is system, database and OID: a recreated table is another one, that of a promoted replica is
    the same."""

    client: Client
    capabilities: Capabilities
    buffer: Buffer | None = None
    everything = ("*", "*")

    def discover(self, pattern: tuple[str, ...]) -> list[ObjectName]:
        """Tables, partitioned tables, materialized views and foreign tables, but no views."""
        with self.client.connect() as connection:
            return catalog.discover(connection, pattern)

    def describe(self, relations: Sequence[Relation]) -> Mapping[Relation, TableInfo | None]:
        with self.client.connect() as connection:
            describe = partial(catalog.describe, connection)
            return described(
                relations, describe, lambda relation: catalog.describe_query(connection, bare_query(relation))
            )

    def details(self, objects: Sequence[ObjectName]) -> Mapping[ObjectName, Details]:
        with self.client.connect() as connection:
            return details(connection, objects)

    def views(self) -> Sequence[ObjectName]:
        return self.discover_views(self.everything)

    def discover_views(self, pattern: tuple[str, ...]) -> list[ObjectName]:
        with self.client.connect() as connection:
            return catalog.discover(connection, pattern, kinds=("v",))

    def why_missing(self, relation: Relation) -> Missing:
        place = f"the database {self.client.database} at {self.client.host}:{self.client.port}"
        return missing_table(self, relation, place, "Correct `from`, or let the connection's user see it")

    def high_watermarks(self, requests: Mapping[str, WatermarkRequest]) -> Mapping[str, HighWatermark]:
        return watermarks.high_watermarks(self.client, requests)

    def explain_read(self, request: WatermarkRequest, hints: ReadHints) -> str:
        info = request.info
        size = info.extra.get("heap") or info.rows.bytes or 0
        has_pages = info.extra.get("kind") in PAGED_KINDS and info.extra.get("whole", True)
        reading = foreign.explained(info) or explain_splitting(
            info, hints, size, has_pages=has_pages, is_increment=request.lower is not None
        )
        hidden = "row-level security may hide rows from this user" if info.extra.get("row_security") else ""
        return "; ".join(filter(None, (reading, hidden)))

    def refuse_read(self, info: TableInfo, hints: ReadHints, *, reads_twice: bool) -> StoppedByPolicy | None:
        if not info.extra.get("populated", True):
            return StoppedByPolicy(f"materialized view {info.object} {NOT_POPULATED}", hint=REFRESH)
        return foreign.refused(info, hints, reads_twice=reads_twice)

    @contextmanager
    def snapshot(
        self, spark: SparkSession, relation: Relation, info: TableInfo, hints: ReadHints
    ) -> Iterator[PostgresSnapshot]:
        with (
            hold_snapshot(self.client, relation, info.extra.get("kind")) as held,
            snapshot_of(self.client, held, spark, relation, info, hints, self.buffer) as snapshot,
        ):
            yield snapshot

    @contextmanager
    def undecoded(self, relation: Relation, info: TableInfo, hints: ReadHints) -> Iterator[HeldCopies]:
        with hold_snapshot(self.client, relation, info.extra.get("kind")) as held:
            _refuse_another(held, info)
            refuse_altered(info, _described(held, relation))
            yield HeldCopies(HeldRelation(self.client, held, relation, info, hints, _native_types(held, relation)))


@contextmanager
def snapshot_of(
    client: Client,
    held: HeldSnapshot,
    spark: SparkSession,
    relation: Relation,
    info: TableInfo,
    hints: ReadHints,
    buffer: Buffer | None,
) -> Iterator[PostgresSnapshot]:
    """The relation at the moment of ``held``, in the way in which this engine reads it."""
    with (
        refusal.named(lambda text: error_of_read(text, client, held, relation, info)),
        ExitStack() as stack,
    ):
        is_foreign = held.is_foreign or bool(info.extra.get("foreign"))
        way, joined = way_of_reading(has_jvm=has_jvm(spark), is_foreign=is_foreign), None
        if way == "here":
            if error := foreign.refused(info, hints, reads_twice=False):
                raise error
            joined = stack.enter_context(client.connect())
            held.join(joined)
        _refuse_another(held, info)
        native = _native_types(held, relation)
        yield PostgresSnapshot(client, held, relation, info, hints, native, spark, way, joined, buffer)


def _refuse_another(held: HeldSnapshot, info: TableInfo) -> None:
    """Raises unless the table under the snapshot's lock is the one described for the plan."""
    if held.oid is not None and str(held.oid) != info.identity.rpartition("/")[2]:
        raise StoppedByPolicy(f"{info.object} was dropped and recreated since the plan was made", hint="Plan again")


def _described(held: HeldSnapshot, relation: Relation) -> TableInfo | None:
    """As the relation is now, under the lock."""
    with held.asking() as connection:
        if relation.object is not None:
            return catalog.describe(connection, [relation.object])[relation.object]
        return catalog.describe_query(connection, bare_query(relation))


def _native_types(held: HeldSnapshot, relation: Relation) -> Mapping[str, str]:
    """Each column's type under the lock, as text."""
    if relation.object is not None:
        return dict(held.columns)
    with held.asking() as connection:
        return {column.name: column.native for column in catalog.columns_of_query(connection, bare_query(relation))}
