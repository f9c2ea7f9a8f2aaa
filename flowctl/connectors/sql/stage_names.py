"""Names of staging tables: each attempt has its own, by table, fence and intent. The table of a process that died is
found, and dropped, by the next fence."""

from __future__ import annotations

import hashlib
import secrets

from flowctl.connectors.target import WriteJob

_PREFIX = "_flowctl_stage_"


def stage_family(job: WriteJob) -> str:
    """What all staging tables of the job's table begin with."""
    return f"{_PREFIX}{_hash(f'{job.record.lineage}/{job.record.table}')[:12]}_"


def new_stage_name(job: WriteJob) -> str:
    return f"{stage_family(job)}{job.fence}_{_hash(job.record.intent_id)[:8]}{secrets.token_hex(2)}"


def is_leftover(name: str, job: WriteJob) -> bool:
    """Whether a name of the family is that of an older fence."""
    return int(name.removeprefix(stage_family(job)).partition("_")[0]) < job.fence


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
