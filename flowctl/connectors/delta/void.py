"""A number given up: committed without data, so that nothing else can land under it. No Spark needed.

``deltalake`` refuses to write tables with type widening, so the commit file is written here: ``commitInfo`` and
``txn``, the two actions that touch neither data nor schema (Delta protocol, *Transaction Identifiers*). It is created
only if its version is free, as every Delta writer does. A table that is not there yet is made, empty: a zombie's
``CREATE TABLE IF NOT EXISTS`` then finds it, and its insert finds the number taken.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from flowctl import __version__
from flowctl.connectors.base import WriteJob
from flowctl.connectors.delta import log, transaction
from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.log import LoggedCommit
from flowctl.connectors.delta.statements import DELETION_VECTORS, FEATURE, table_properties
from flowctl.connectors.delta.types import schema_json
from flowctl.errors import TableError, TransientError
from flowctl.spec.storage import local_path, scheme

#: Features that ask nothing of a commit without data. Others (a catalog that owns the commits) do, or are unknown.
_HARMLESS = frozenset(
    {
        "appendOnly", "invariants", "checkConstraints", "generatedColumns", "identityColumns", "changeDataFeed",
        "columnMapping", "deletionVectors", "rowTracking", "timestampNtz", "typeWidening", "typeWidening-preview",
        "domainMetadata", "v2Checkpoint", "clustering", "vacuumProtocolCheck", "variantType", "variantType-preview",
        "allowColumnDefaults", "icebergCompatV1", "icebergCompatV2", "checkpointProtection",
    }
)  # fmt: skip
_TRIES = 10


def commit(location: TableLocation, app: str, job: WriteJob) -> LoggedCommit:
    """Commits ``job.record`` empty under its number; :class:`TransientError` when other writers keep winning."""
    for _ in range(_TRIES):
        table = log.open_table(location)
        before = log.newest_record(location, table, app) if table is not None else None
        if table is None:
            target_id, version = str(uuid.uuid4()), 0
            setup = [_protocol(job), _metadata(job, target_id)]
        else:
            target_id, version, setup = str(table.metadata().id), table.version() + 1, []
            _check_features(location, [*(table.protocol().writer_features or ())])
        given_up = replace(job.record, target_id=target_id, void=True)
        data = log.data_commit(before)
        record = {**given_up.record(), "data_seq": data.number, log.ATTEMPT: data.attempt}
        actions = [_commit_info(record), *setup, _transaction(app, job.record.seq)]
        if _create(location, version, actions):
            return LoggedCommit(version, record, {})
        taken = transaction.read_back(location, app, record)
        if taken is not None:
            return taken
    raise TransientError(f"{location.url} is written by others too fast to commit number {job.record.seq} as void")


def _check_features(location: TableLocation, features: list[str]) -> None:
    unknown = sorted(set(features) - _HARMLESS)
    if unknown:
        raise TableError(
            f"{location.url} has the Delta features {', '.join(unknown)}, under which flowctl cannot give up a number",
            hint="Let the pending number finish instead: run `flowctl apply` without changes to this table",
        )


def _commit_info(record: Mapping[str, Any]) -> dict[str, Any]:
    now = int(time.time() * 1000)
    info = {
        "timestamp": now,
        "operation": "WRITE",
        "operationParameters": {"mode": "Append", "partitionBy": "[]"},
        "isBlindAppend": True,
        "operationMetrics": {"numFiles": "0", "numOutputRows": "0", "numOutputBytes": "0"},
        "userMetadata": json.dumps(record),
        "engineInfo": f"flowctl/{__version__}",
    }
    return {"commitInfo": info}


def _transaction(app: str, seq: int) -> dict[str, Any]:
    return {"txn": {"appId": app, "version": seq, "lastUpdated": int(time.time() * 1000)}}


def _protocol(job: WriteJob) -> dict[str, Any]:
    properties = table_properties(job.layout)
    features = ["typeWidening", "timestampNtz"]
    if properties[DELETION_VECTORS] == "true":
        features.append("deletionVectors")
    return {
        "protocol": {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": features,
            "writerFeatures": [*features, "appendOnly", "invariants"],
        }
    }


def _metadata(job: WriteJob, target_id: str) -> dict[str, Any]:
    return {
        "metaData": {
            "id": target_id,
            "format": {"provider": "parquet", "options": {}},
            "schemaString": schema_json(job.columns),
            "partitionColumns": list(job.layout.partition_by),
            "configuration": {
                name: value for name, value in table_properties(job.layout).items() if not name.startswith(FEATURE)
            },
            "createdTime": int(time.time() * 1000),
        }
    }


def _create(location: TableLocation, version: int, actions: list[dict[str, Any]]) -> bool:
    """Creates the commit file of ``version`` in one act; False when somebody else has it."""
    content = "".join(json.dumps(action) + "\n" for action in actions).encode()
    path = f"{location.url}/_delta_log/{version:020}.json"
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
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = path.parent / f".{path.name}.{uuid.uuid4().hex}.tmp"
    whole.write_bytes(content)
    try:
        os.link(whole, path)
    except FileExistsError:
        return False
    finally:
        with contextlib.suppress(FileNotFoundError):
            whole.unlink()
    return True
