"""New rows as files that Sail writes: with its own Delta writer, into a table that is hidden in the real one's folder.

Sail tells nobody the sequence number of a batch (:mod:`flowctl.connectors.delta.commit`), and its Parquet writer gets
partitions wrong: a null becomes 0, 1970-01-01 or nothing in a folder's name; timestamps and decimals it refuses. Its
Delta writer has files, statistics and partitions as they should be. So it writes into an empty table in a new folder
``flowctl-<id>/`` of the real one. The ``add`` actions of that commit, with the folder before their paths, then become
part of a commit of the real table. Files that never did are what Delta calls unreferenced: no reader sees them, VACUUM
removes them.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flowctl.connectors.delta import actions, replay
from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.replay import Action
from flowctl.connectors.delta.spark_files import CODEC

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: What says how files are written.
_OF_FILES = ("delta.dataSkippingStatsColumns", "delta.dataSkippingNumIndexedCols", CODEC)


def write_files(location: TableLocation, metadata: Mapping[str, Any], frame: DataFrame) -> list[Action]:
    """Writes ``frame``, whose columns are those of ``metadata``, and returns the ``add`` actions for ``location``."""
    name = actions.new_folder()
    hidden = TableLocation(f"{location.url}/{name}", location.storage)
    actions.publish(hidden, 0, [_PROTOCOL, {"metaData": _hidden_metadata(metadata)}])
    frame.write.format("delta").mode("append").save(hidden.spark_path)
    added = [action["add"] for action in replay.commits_after(hidden, 0) if "add" in action]
    hidden.file_system().rm(f"{hidden.url}/_delta_log", recursive=True)  # what stays is a folder of files
    return [{**add, "path": f"{name}/{add['path']}"} for add in added if actions.row_count(add)]


_PROTOCOL = {
    "protocol": {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["timestampNtz"],
        "writerFeatures": ["timestampNtz", "appendOnly", "invariants"],
    }
}


def _hidden_metadata(metadata: Mapping[str, Any]) -> Action:
    """The real table's schema and partitions, and of its properties only what says how files are written."""
    kept = {name: value for name, value in metadata["configuration"].items() if name in _OF_FILES}
    return {**metadata, "id": str(uuid.uuid4()), "configuration": kept}
