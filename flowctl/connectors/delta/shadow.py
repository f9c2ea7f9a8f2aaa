"""Where an engine writes that cannot commit under our number: a table of its own inside the table's folder.

Sail writes Delta with files, statistics and partitions as they should be, but tells nobody the number of a batch
(:mod:`flowctl.connectors.delta.log_writer`). So it writes into a *shadow*: an empty table in a new folder
``flowctl-<id>/`` of the real one. The ``add`` actions of the shadow's commit, with that folder before their paths, then
become part of a commit of the real table. Files of a shadow that never did are what Delta calls unreferenced: no
reader sees them, VACUUM removes them.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from flowctl.connectors.delta import actions, replay
from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.replay import Action, LogSnapshot

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_STATISTICS = ("delta.dataSkippingStatsColumns", "delta.dataSkippingNumIndexedCols")


def written(location: TableLocation, metadata: Mapping[str, Any], frame: DataFrame) -> list[Action]:
    """Writes ``frame``, whose columns are those of ``metadata``, and returns the ``add`` actions for ``location``."""
    name, shadow = _folder(location)
    actions.publish(shadow, 0, [_PROTOCOL, {"metaData": _own(metadata)}])
    frame.write.format("delta").mode("append").save(shadow.spark_path)
    added = [action["add"] for action in replay.commits_after(shadow, 0) if "add" in action]
    _forget(shadow)
    return [{**add, "path": f"{name}/{add['path']}"} for add in added if _rows(add)]


@contextmanager
def reading(
    spark: SparkSession, location: TableLocation, snapshot: LogSnapshot, files: Iterable[Action]
) -> Iterator[DataFrame]:
    """The rows of ``files``, live ones of ``snapshot``, and of no others."""
    chosen = list(files)
    if len(chosen) == len(snapshot.files):
        yield spark.read.format("delta").load(location.spark_path)
        return
    _, shadow = _folder(location)
    metadata = {"metaData": {**snapshot.metadata, "id": str(uuid.uuid4())}}
    seen = [{"add": _absolute(location, add)} for add in chosen]
    actions.publish(shadow, 0, [{"protocol": snapshot.protocol}, metadata, *seen])
    try:
        yield spark.read.format("delta").load(shadow.spark_path)
    finally:
        _forget(shadow)


def rows(added: Iterable[Action]) -> int:
    return sum(_rows(add) for add in added)


_PROTOCOL = {
    "protocol": {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["timestampNtz"],
        "writerFeatures": ["timestampNtz", "appendOnly", "invariants"],
    }
}


def _folder(location: TableLocation) -> tuple[str, TableLocation]:
    name = f"flowctl-{uuid.uuid4().hex}"
    return name, TableLocation(f"{location.url}/{name}", location.storage)


def _own(metadata: Mapping[str, Any]) -> Action:
    """The real table's schema and partitions, and of its properties only what says which statistics to write."""
    kept = {name: value for name, value in metadata["configuration"].items() if name in _STATISTICS}
    return {**metadata, "id": str(uuid.uuid4()), "configuration": kept}


def _rows(add: Action) -> int:
    return int(json.loads(add["stats"])["numRecords"])


def _forget(shadow: TableLocation) -> None:
    """Takes the shadow's log away: what stays is a folder of files."""
    shadow.file_system().rm(f"{shadow.url}/_delta_log", recursive=True)


def _absolute(location: TableLocation, add: Action) -> Action:
    """The same file seen from another table."""
    found = {**add, "path": f"{_root(location)}/{add['path']}" if "://" not in add["path"] else add["path"]}
    vector = add.get("deletionVector")
    if vector and vector["storageType"] == "u":
        path = _vector_path(vector["pathOrInlineDv"])
        found["deletionVector"] = {**vector, "storageType": "p", "pathOrInlineDv": f"{_root(location)}/{path}"}
    return found


def _root(location: TableLocation) -> str:
    """As in an action: object stores by their own scheme, not Hadoop's."""
    path = location.spark_path
    return path.replace("s3a://", "s3://", 1) if path.startswith("s3a://") else path


def _vector_path(written: str) -> str:
    """``<folder><20 characters>``: the folder may be empty, the rest is a UUID in Z85 (Delta protocol, *Deletion Vector
    Descriptor Schema*)."""
    folder, encoded = written[:-20], written[-20:]
    number = b"".join(_z85(encoded[at : at + 5]).to_bytes(4, "big") for at in range(0, 20, 5))
    return f"{folder}/deletion_vector_{uuid.UUID(bytes=number)}.bin".lstrip("/")


def _z85(text: str) -> int:
    value = 0
    for char in text:
        value = value * 85 + _ALPHABET.index(char)
    return value


_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
