"""Named steps of the commit protocol at which a test can kill the process, as `kill -9` would, or ask it to stop.

The names are the protocol (`docs/architecture.md`): the crash tests walk :data:`POINTS` and kill at each one.
Outside tests, :func:`reached` costs one environment lookup.
"""

from __future__ import annotations

import os
import signal
from typing import Literal, get_args

Point = Literal[
    "before_intent",
    "after_intent",
    "during_stage",
    "after_stage",
    "after_quarantine",
    "before_commit",
    "in_commit",
    "after_commit",
    "before_record",
    "after_record",
]
#: The steps of a change stream, in addition.
StreamPoint = Literal[
    "before_prepare",
    "moment_begun",
    "slot_created",
    "moment_recorded",
    "segment_written",
    "landed",
    "acknowledged",
    "round_committed",
    "after_cut",
    "batch_pruned",
]
#: The steps of a commit to a topic, in addition: all rows are sent; the transaction is committed.
TopicPoint = Literal["in_transaction", "transaction_committed"]
#: The step of a commit of files, in addition: the manifest is there, and the files that it replaces, too.
FilesPoint = Literal["before_clean"]
POINTS: tuple[Point, ...] = get_args(Point)
STREAM_POINTS: tuple[StreamPoint, ...] = get_args(StreamPoint)
TOPIC_POINTS: tuple[TopicPoint, ...] = get_args(TopicPoint)


def reached(point: Point | StreamPoint | TopicPoint | FilesPoint, table: str = "") -> None:
    """Sends this process SIGKILL, or the signal named by ``FLOWCTL_CRASH_WITH``, if ``FLOWCTL_CRASH_AT`` is ``point``
    or ``point:table``."""
    wanted = os.environ.get("FLOWCTL_CRASH_AT")
    if wanted and wanted in (point, f"{point}:{table}"):
        os.kill(os.getpid(), signal.Signals[os.environ.get("FLOWCTL_CRASH_WITH", "SIGKILL")])
