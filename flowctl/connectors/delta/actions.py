"""The actions of Delta's log that flowctl writes itself, and the one act that commits them.

A commit file is created only if its version is free, as every Delta writer does (Delta protocol, *Delta Log Entries*).
``deltalake`` refuses to write tables with type widening, and neither it nor Sail tells Delta the number under which a
batch is committed.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flowctl import __version__, delays
from flowctl.connectors.delta import features
from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.statements import DELETION_VECTORS, table_properties
from flowctl.connectors.delta.types import schema_json
from flowctl.connectors.target import WriteJob
from flowctl.errors import TransientError
from flowctl.storage.durable import make_folder, sync_folder, write_durably
from flowctl.storage.urls import local_path, scheme

Action = dict[str, Any]

#: Metrics of a commit that writes nothing.
EMPTY = {"numFiles": "0", "numOutputRows": "0", "numOutputBytes": "0"}


def commit_info(
    record: Mapping[str, Any] | None, operation: str, parameters: Mapping[str, str], metrics: Mapping[str, str]
) -> Action:
    """``record`` becomes ``userMetadata``; ``metrics`` are Delta's, by name, as text."""
    info = {
        "timestamp": now(),
        "operation": operation,
        "operationParameters": dict(parameters),
        "isBlindAppend": parameters.get("mode") == "Append",
        "operationMetrics": dict(metrics),
        **({"userMetadata": json.dumps(record)} if record is not None else {}),
        "engineInfo": f"flowctl/{__version__}",
    }
    return {"commitInfo": info}


def now() -> int:
    """Milliseconds since 1970, as Delta writes times."""
    return int(time.time() * 1000)


def transaction(app: str, seq: int) -> Action:
    """Delta's own memory of the newest number of an application (Delta protocol, *Transaction Identifiers*)."""
    return {"txn": {"appId": app, "version": seq, "lastUpdated": now()}}


def protocol(job: WriteJob) -> Action:
    """Of a table that flowctl makes; the same features that Spark gives it."""
    needed = features.of_columns(job.columns)
    if table_properties(job.columns, job.layout)[DELETION_VECTORS] == "true":
        needed.append(features.DELETION_VECTORS)
    return {"protocol": features.protocol(needed, ["clustering", "domainMetadata"] if job.layout.cluster_by else [])}


def clustering(job: WriteJob) -> list[Action]:
    """What a new table is clustered by (Delta protocol, *Clustered Table*); nothing where it is not."""
    if not job.layout.cluster_by:
        return []
    columns = {"clusteringColumns": [[name] for name in job.layout.cluster_by], "domainName": "delta.clustering"}
    domain = {"domain": "delta.clustering", "configuration": json.dumps(columns), "removed": False}
    return [{"domainMetadata": domain}]


def metadata(job: WriteJob, target_id: str) -> Action:
    return {
        "metaData": {
            "id": target_id,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema_json(job.columns),
            "partitionColumns": list(job.layout.partition_by),
            "configuration": table_properties(job.columns, job.layout),
            "createdTime": now(),
        }
    }


def publish(location: TableLocation, version: int, actions: Sequence[Action]) -> bool:
    """Creates the commit file of ``version`` in one act; False when somebody else has it."""
    content = "".join(json.dumps(action) + "\n" for action in actions)
    delays.pause()
    created = _created(location, f"{version:020}.json", content)
    delays.pause()
    return created


def write_checksum_of_empty(location: TableLocation, protocol: Action, metadata: Action) -> None:
    """What a reader may take for the state of version 0 instead of working it out, which costs Spark a quarter of the
    time of a first small batch (Delta protocol, *Version Checksum File*; optional)."""
    counts = {"tableSizeBytes": 0, "numFiles": 0, "numMetadata": 1, "numProtocol": 1}
    lists: Action = {"setTransactions": [], "domainMetadata": [], "allFiles": []}
    state = json.dumps({**counts, **lists, "metadata": metadata["metaData"], **protocol})
    with contextlib.suppress(TransientError, OSError):  # it makes reading faster and nothing else
        _created(location, f"{0:020}.crc", state)


def _created(location: TableLocation, name: str, text: str) -> bool:
    """A file of the log, in one act; False when it is there."""
    path, content = f"{location.url}/_delta_log/{name}", text.encode()
    if scheme(location.url) == "file":
        return _create_on_disk(local_path(path), content)
    try:
        location.file_system().pipe_file(path, content, mode="create")
    except FileExistsError:
        return False
    except OSError as error:  # some stores answer a lost race with an error that s3fs does not know
        if "PreconditionFailed" in str(error) or "412" in str(error):
            return False
        raise TransientError(f"{path} could not be written: {error}") from error
    return True


def _create_on_disk(path: Path, content: bytes) -> bool:
    """Durably, file and folder: state, which says that the number is committed, survives a power cut too."""
    whole = path.parent / f".{path.name}.{uuid.uuid4().hex}.tmp"
    try:
        make_folder(path.parent)
        write_durably(whole, content)
        os.link(whole, path)
        sync_folder(path.parent)
    except FileExistsError:
        return False
    except OSError as error:
        raise TransientError(f"{path} could not be written: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):  # a name that is left over begins with a dot: no reader sees it
            whole.unlink()
    return True


def row_count(file: Mapping[str, Any]) -> int:
    """Of the file of an ``add``, those that a deletion vector hides included."""
    return int(json.loads(file["stats"])["numRecords"])


def new_folder() -> str:
    """The name of a folder within a table's, for files that no commit names yet."""
    return f"flowctl-{uuid.uuid4().hex}"


def remove_action(file: Mapping[str, Any]) -> Action:
    """What takes the file of an ``add`` out of the table."""
    kept = {name: file[name] for name in ("path", "partitionValues", "size", "deletionVector", "stats") if name in file}
    return {"remove": {**kept, "deletionTimestamp": now(), "dataChange": True, "extendedFileMetadata": True}}
