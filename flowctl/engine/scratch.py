"""The folder for Spark's files on this machine: removed at the end of the run, or by the next run if it was killed."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PREFIX = "flowctl-spark-"
#: A file that its owner keeps locked while it is running.
_OWNER = "owner"
#: Seconds allowed between creating a folder and locking it.
_GRACE = 60.0


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A new folder for this process only."""
    _remove_orphans()
    with tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with (folder / _OWNER).open("w") as owner:
            fcntl.flock(owner, fcntl.LOCK_EX)
            yield folder


def _remove_orphans() -> None:
    for owner in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_OWNER}"):
        try:
            with owner.open("r+") as file:  # fails for another user's folder
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if time.time() - owner.stat().st_mtime > _GRACE:
                    shutil.rmtree(owner.parent, ignore_errors=True)
        except OSError:  # in use, another user's, or already removed
            continue
