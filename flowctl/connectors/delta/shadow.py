"""Where an engine writes that cannot commit under our number: a table of its own inside the table's folder.

Sail writes Delta with files, statistics and partitions as they should be, but tells nobody the number of a batch
(:mod:`flowctl.connectors.delta.log_writer`). So it writes into a *shadow*: an empty table in a new folder
``flowctl-<id>/`` of the real one. The ``add`` actions of the shadow's commit, with that folder before their paths, then
become part of a commit of the real table. Files of a shadow that never did are what Delta calls unreferenced: no
reader sees them, VACUUM removes them.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from flowctl.connectors.delta import actions, replay
from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.parquet_files import CODEC
from flowctl.connectors.delta.replay import Action

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

#: What says how files are written.
_OF_FILES = ("delta.dataSkippingStatsColumns", "delta.dataSkippingNumIndexedCols", CODEC)


def written(location: TableLocation, metadata: Mapping[str, Any], frame: DataFrame) -> list[Action]:
    """Writes ``frame``, whose columns are those of ``metadata``, and returns the ``add`` actions for ``location``."""
    name = actions.new_folder()
    shadow = TableLocation(f"{location.url}/{name}", location.storage)
    actions.publish(shadow, 0, [_PROTOCOL, {"metaData": _own(metadata)}])
    frame.write.format("delta").mode("append").save(shadow.spark_path)
    added = [action["add"] for action in replay.commits_after(shadow, 0) if "add" in action]
    _forget(shadow)
    return [{**add, "path": f"{name}/{add['path']}"} for add in added if actions.counted_rows(add)]


_PROTOCOL = {
    "protocol": {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["timestampNtz"],
        "writerFeatures": ["timestampNtz", "appendOnly", "invariants"],
    }
}


def _own(metadata: Mapping[str, Any]) -> Action:
    """The real table's schema and partitions, and of its properties only what says how files are written."""
    kept = {name: value for name, value in metadata["configuration"].items() if name in _OF_FILES}
    return {**metadata, "id": str(uuid.uuid4()), "configuration": kept}


def _forget(shadow: TableLocation) -> None:
    """Takes the shadow's log away: what stays is a folder of files."""
    shadow.file_system().rm(f"{shadow.url}/_delta_log", recursive=True)
