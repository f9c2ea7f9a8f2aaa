"""A number given up: committed without data, so that nothing else can land under it. No Spark needed.

The commit has ``commitInfo`` and ``txn`` only, the two actions that touch neither data nor schema. A table that is
not there yet is made, empty: a zombie's ``CREATE TABLE IF NOT EXISTS`` then finds it, and its insert finds the number
taken.
"""

from __future__ import annotations

import uuid
from dataclasses import replace

from flowctl.connectors.base import WriteJob
from flowctl.connectors.delta import actions, log, transaction
from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.log import LoggedCommit
from flowctl.errors import TableError, TransientError

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
            setup = [actions.protocol(job), actions.metadata(job, target_id)]
        else:
            target_id, version, setup = str(table.metadata().id), table.version() + 1, []
            _check_features(location, [*(table.protocol().writer_features or ())])
        given_up = replace(job.record, target_id=target_id, void=True)
        data = log.data_commit(before)
        record = {**given_up.record(), "data_seq": data.number, log.ATTEMPT: data.attempt}
        told = actions.commit_info(record, "WRITE", {"mode": "Append", "partitionBy": "[]"}, actions.EMPTY)
        if actions.publish(location, version, [told, *setup, actions.transaction(app, job.record.seq)]):
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
