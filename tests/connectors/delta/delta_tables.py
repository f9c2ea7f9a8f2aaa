"""What tests of Delta's files ask of a writer's table."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

from flowctl.connectors.delta import actions, commit, data_files
from flowctl.connectors.delta.choice import Way, choose, traits_of
from flowctl.connectors.delta.location import TableLocation, location_of
from flowctl.connectors.delta.table import open_existing
from flowctl.connectors.target import WriteJob
from tests.connectors.writing import Writer


def location(writer: Writer) -> TableLocation:
    return location_of(writer.place.options["path"], writer.place.object, {})


def content(writer: Writer) -> dict[int, str | None]:
    """Names by key, of a table that keeps its keys."""
    rows = writer.place.read(["id", "name"])
    assert len({id for id, _ in rows}) == len(rows), "a key is there twice"
    return dict(rows)


def foreign_commit(place: TableLocation, *content: Mapping[str, Any]) -> None:
    """Somebody else's commit, as the next version."""
    version = open_existing(place).version + 1
    info = actions.commit_info("", "WRITE", {"mode": "Append"}, actions.EMPTY)
    assert commit.publish(place, version, [info, *map(dict, content)])


def foreign_rows(place: TableLocation, rows: pa.Table, **partition: str) -> None:
    """Somebody else's rows, as the next version."""
    name, footers = f"part-{uuid.uuid4()}.parquet", []
    pq.write_table(rows, f"{place.url}/{name}", metadata_collector=footers)
    add = data_files.add_action(name, Path(place.url, name).stat().st_size, footers[0], rows.schema.names)
    foreign_commit(place, {"add": {**add, "partitionValues": partition}})


def way(writer: Writer, job: WriteJob) -> Way:
    """How the target would write ``job`` now."""
    there = writer.place.target.describe([job.object])[job.object]
    return choose(location(writer).url, there, job.shape(in_memory=False), traits_of(writer.spark)).way


def files(writer: Writer) -> list[dict[str, Any]]:
    """The ``add`` actions of the table's files."""
    return list(open_existing(location(writer)).files)


def delete(path: str, condition: str) -> None:
    DeltaTable(path).delete(condition)


def vacuum(path: str) -> None:
    """Of everything that the newest version does not need."""
    DeltaTable(path).vacuum(0, dry_run=False, enforce_retention_duration=False)
