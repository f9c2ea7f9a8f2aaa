"""PostgreSQL as a direct source: metadata through psycopg, rows through Spark in one snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from flowctl.connectors.base import Capabilities
from flowctl.connectors.postgres import catalog, foreign
from flowctl.connectors.postgres.client import Client, from_driver
from flowctl.connectors.postgres.conditions import (
    has_part,
    part_query,
    read_watermark,
    watermark_values,
    with_part,
)
from flowctl.connectors.postgres.failures import named
from flowctl.connectors.postgres.foreign import ForeignReader
from flowctl.connectors.postgres.planner import planned
from flowctl.connectors.postgres.reading import PostgresSnapshot, Reader
from flowctl.connectors.postgres.snapshot import HeldSnapshot, hold_snapshot
from flowctl.connectors.postgres.splits import explained
from flowctl.connectors.postgres.writing_transactions import writers
from flowctl.connectors.source import DirectSource, HighWatermark, Missing, Relation, WatermarkRequest
from flowctl.connectors.sql.conditions import bare_query, counts_in_zone
from flowctl.engine.session import has_jvm
from flowctl.errors import StoppedByPolicy, TableError
from flowctl.model.table_info import ObjectName, RowEstimate, TableInfo
from flowctl.spec.spec import ReadHints
from flowctl.spec.suggest import nearest
from flowctl.storage.scratch import Scratch

if TYPE_CHECKING:
    import psycopg
    from pyspark.sql import SparkSession

_OTHERWISE = "Correct `from`, or let the connection's user see it"


@dataclass(frozen=True)
class PostgresSource(DirectSource):
    """A table's identity is system, database and OID: a table made
    anew under its old name is another one, a promoted replica's is the same."""

    client: Client
    capabilities: Capabilities
    scratch: Scratch | None = None

    def discover(self, pattern: tuple[str, ...]) -> list[ObjectName]:
        """Tables, partitioned tables, materialized views and foreign tables; views only by their name."""
        with self.client.connect() as connection:
            return catalog.discover(connection, pattern)

    def describe(self, relations: Sequence[Relation]) -> Mapping[Relation, TableInfo | None]:
        objects = list(dict.fromkeys(relation.object for relation in relations if relation.object is not None))
        with self.client.connect() as connection:
            infos = catalog.describe(connection, objects) if objects else {}
            return {
                relation: infos[relation.object]
                if relation.object is not None
                else catalog.describe_query(connection, bare_query(relation))
                for relation in relations
            }

    def why_missing(self, relation: Relation) -> Missing:
        wanted = relation.object or ObjectName(("",))
        there = self.discover(("*",) * len(wanted.parts))
        place = f"the database {self.client.database} at {self.client.host}:{self.client.port}"
        return Missing(f"{place} has no table {wanted}", nearest(str(wanted), map(str, there), _OTHERWISE))

    def high_watermarks(self, requests: Mapping[str, WatermarkRequest]) -> Mapping[str, HighWatermark]:
        """One statement for all; when it fails, one for each, so that only the culprits do. What is new in a table is
        estimated by the planner."""
        import psycopg

        requests, own_zone = self._in_zones(requests)
        wanted: dict[str, str] = {}
        failed: dict[str, HighWatermark] = {}
        for name, request in requests.items():
            try:
                wanted[name] = watermark_values(request)
            except TableError as error:
                failed[name] = HighWatermark(None, RowEstimate(), failure=error)
        if not wanted:
            return failed
        with self.client.connect() as connection:
            together = "\nUNION ALL ".join(f"SELECT {at}, {values}" for at, values in enumerate(wanted.values()))
            try:
                busy = writers(connection, requests)
                rows = {row[0]: row[1:] for row in connection.execute(together).fetchall()}
                watermarks = {
                    name: replace(
                        read_watermark(requests[name], rows[at]), writers=busy.get(name, 0), zone=own_zone.get(name, "")
                    )
                    for at, name in enumerate(wanted)
                }
                return failed | watermarks | _estimated(connection, requests, watermarks)
            except psycopg.Error:
                return failed | {name: self._watermark_alone(connection, requests[name]) for name in wanted}

    def _in_zones(self, requests: Mapping[str, WatermarkRequest]) -> tuple[dict[str, WatermarkRequest], dict[str, str]]:
        """The requests, those that need a time zone and name none with the database's own, which is the second by their
        names."""
        names = [name for name, request in requests.items() if counts_in_zone(request) and request.zone is None]
        if not names:
            return dict(requests), {}
        own = self.client.own_time_zone()
        zoned = {name: replace(requests[name], zone=own) for name in names}
        return {**requests, **zoned}, dict.fromkeys(names, own)

    def _watermark_alone(self, connection: psycopg.Connection[Any], request: WatermarkRequest) -> HighWatermark:
        import psycopg

        try:
            row = connection.execute(f"SELECT {watermark_values(request)}").fetchone()
        except psycopg.Error as error:
            told = from_driver(error, self.client)
            if not isinstance(told, TableError):
                raise
            return HighWatermark(None, RowEstimate(), failure=told)
        assert row is not None
        return read_watermark(request, row)

    def explain_read(self, request: WatermarkRequest, hints: ReadHints) -> str:
        told = foreign.explained(request.info)
        return told or explained(request.info, hints, is_increment=request.lower is not None)

    def refuse_read(self, info: TableInfo, hints: ReadHints, *, reads_twice: bool) -> StoppedByPolicy | None:
        return foreign.refused(info, hints, reads_twice=reads_twice)

    @contextmanager
    def snapshot(
        self, spark: SparkSession, relation: Relation, info: TableInfo, hints: ReadHints
    ) -> Iterator[PostgresSnapshot]:
        reader: Reader = "jdbc" if has_jvm(spark) else "copy"
        with (
            hold_snapshot(self.client, relation, info.extra.get("kind")) as held,
            named(self.client, held, relation, info),
            self._foreign_reader(held, info, hints) as foreign_reader,
        ):
            _refuse_another(held, info)
            native = _native_types(held, relation)
            yield PostgresSnapshot(spark, self.client, held, relation, info, hints, reader, native, foreign_reader)

    @contextmanager
    def _foreign_reader(self, held: HeldSnapshot, info: TableInfo, hints: ReadHints) -> Iterator[ForeignReader | None]:
        if not held.is_foreign and not info.extra.get("foreign"):
            yield None
            return
        if error := foreign.refused(info, hints, reads_twice=False):
            raise error
        with self.client.connect() as connection:
            held.join(connection)
            yield ForeignReader(connection, self.scratch)


def _refuse_another(held: HeldSnapshot, info: TableInfo) -> None:
    """What was described for the plan is what lies under the snapshot's lock."""
    if held.oid is not None and str(held.oid) != info.identity.rpartition("/")[2]:
        raise StoppedByPolicy(f"{info.object} was dropped and made anew since the plan was made", hint="Plan again")


def _native_types(held: HeldSnapshot, relation: Relation) -> Mapping[str, str]:
    """Each column's type under the lock, as text."""
    if relation.object is not None:
        return dict(held.columns)
    with held.asking() as connection:
        return {column.name: column.native for column in catalog.columns_of_query(connection, bare_query(relation))}


def _estimated(
    connection: psycopg.Connection[Any],
    requests: Mapping[str, WatermarkRequest],
    watermarks: Mapping[str, HighWatermark],
) -> dict[str, HighWatermark]:
    """The watermarks of tables with something new, with about how many rows that is."""
    import psycopg

    queries = {
        name: part_query(requests[name])
        for name, watermark in watermarks.items()
        if has_part(requests[name], watermark)
    }
    try:
        found = planned(connection, queries) if queries else {}
    except psycopg.Error:  # an estimate is not worth a plan
        found = {}
    return {name: with_part(requests[name], watermarks[name], one.rows) for name, one in found.items()}
