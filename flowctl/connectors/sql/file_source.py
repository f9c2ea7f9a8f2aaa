"""A database in one file as a landed source: this process opens the file for each question.

A file is identified by its path alone, as it may be replaced by a new copy every night, which is the same source; a
file at another path is another source. Only its rows reveal that a table was recreated.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Generic, TypeVar

from flowctl.connectors.base import Capabilities
from flowctl.connectors.source import HighWatermark, LandedSource, Missing, Relation, WatermarkRequest
from flowctl.connectors.sql.source import in_own_zone, missing_table
from flowctl.errors import StoppedByPolicy
from flowctl.model.table_info import Column, ObjectName, TableInfo

C = TypeVar("C")


@dataclass(frozen=True)
class FileSource(LandedSource, Generic[C]):
    """``C`` is the driver's connection. ``system`` identifies the file in state, ``identity`` every table of it;
    ``own_zone`` is the time zone of its clock."""

    path: Path
    capabilities: Capabilities
    system: str = ""
    identity: ClassVar[str]
    own_zone: ClassVar[str]

    @abstractmethod
    def reading(self) -> AbstractContextManager[C]:
        """A connection that only reads."""

    def reading_high_watermarks(self) -> AbstractContextManager[C]:
        """The same, for the queries of all tables."""
        return self.reading()

    @abstractmethod
    def describe_table(self, connection: C, object: ObjectName) -> TableInfo | None: ...

    @abstractmethod
    def columns(self, connection: C, relation: Relation) -> tuple[Column, ...] | None:
        """Of the object or the query; None if the object does not exist."""

    @abstractmethod
    def high_watermark(self, connection: C, request: WatermarkRequest) -> HighWatermark:
        """A failure that concerns the table alone is part of the result."""

    def fold(self, name: str) -> str:
        """SQLite and DuckDB ignore case."""
        return name.lower()

    def describe(self, relations: Sequence[Relation]) -> Mapping[Relation, TableInfo | None]:
        with self.reading() as connection:
            return {relation: self._describe(connection, relation) for relation in relations}

    def _describe(self, connection: C, relation: Relation) -> TableInfo | None:
        if relation.object is not None:
            return self.describe_table(connection, relation.object)
        columns = self.columns(connection, relation) or ()
        return TableInfo(ObjectName(("(query)",)), columns, self.identity, system=self.system)

    def high_watermarks(self, requests: Mapping[str, WatermarkRequest]) -> Mapping[str, HighWatermark]:
        requests, zones = in_own_zone(requests, lambda: self.own_zone)
        with self.reading_high_watermarks() as connection:
            found = {name: self.high_watermark(connection, request) for name, request in requests.items()}
        return {name: replace(one, zone=zones.get(name, "")) for name, one in found.items()}

    def why_missing(self, relation: Relation) -> Missing:
        return missing_table(self, relation, str(self.path), "Correct `from`, or `path` of the connection")

    def columns_now(self, connection: C, relation: Relation, info: TableInfo) -> dict[str, Column]:
        """The columns by name, for a capture."""
        here = self.columns(connection, relation)
        if here is None:
            raise StoppedByPolicy(f"{info.object} was dropped since the plan was made", hint="Plan again")
        return {column.name: column for column in here}
