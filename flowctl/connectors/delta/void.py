"""A number given up: committed without data, so that nothing else can land under it. No Spark needed.

The commit has ``commitInfo`` and ``txn`` only, the two actions that touch neither data nor schema. A table that is
not there yet is made, empty: a stale writer's ``CREATE TABLE IF NOT EXISTS`` then finds it, and its insert finds the
number taken.
"""

from __future__ import annotations

import uuid
from dataclasses import replace

from flowctl.connectors.delta import actions, commit, log
from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.log import LoggedCommit
from flowctl.connectors.delta.table import open_table
from flowctl.connectors.target import WriteJob
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


def void(location: TableLocation, app: str, job: WriteJob) -> LoggedCommit:
    """Commits ``job.record`` empty under its number, or returns the commit of that number that was faster: whichever,
    it is decided on the very version that the void is written over. :class:`TransientError` when other writers keep
    winning."""
    for _ in range(_TRIES):
        table = open_table(location)
        if table is not None and (done := table.standing(app, job.record.record())):
            return done
        if table is None:
            target_id, version, before = str(uuid.uuid4()), 0, None
            setup = [actions.protocol(job), actions.metadata(job, target_id), *actions.clustering(job)]
        else:
            target_id, version, before, setup = table.identity, table.version + 1, table.newest(app), []
            _check_features(location, [*(table.handle.protocol().writer_features or ())])
        data = log.data_commit(before)
        given_up = replace(job.record, target_id=target_id)
        record = {**given_up.record(), "data_seq": data.number, log.ATTEMPT: data.attempt}
        info = actions.commit_info(record, "WRITE", {"mode": "Append", "partitionBy": "[]"}, actions.EMPTY)
        content = [info, *setup, actions.transaction(app, job.record.seq)]
        job.before_commit()
        if commit.publish_entry(location, version, app, record, content):
            return commit.read_back(location, version, record)
    raise TransientError(f"{location.url} is written by others too fast to commit number {job.record.seq} as void")


def _check_features(location: TableLocation, features: list[str]) -> None:
    unknown = sorted(set(features) - _HARMLESS)
    if unknown:
        raise TableError(
            f"{location.url} has the Delta features {', '.join(unknown)}, under which flowctl cannot give up a number",
            hint="Let the pending number finish instead: run `flowctl apply` without changes to this table",
        )
