"""The folder for what Spark leaves on this machine: removed at the end of the run, or by the next one after a kill."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PREFIX = "flowctl-spark-"
#: Locked by its owner for as long as that lives.
_OWNER = "owner"
#: Seconds that a folder gets between being created and being locked.
_GRACE = 60.0


@contextmanager
def scratch_folder() -> Iterator[Path]:
    """A new folder of this process alone."""
    _remove_orphans()
    with tempfile.TemporaryDirectory(prefix=_PREFIX, ignore_cleanup_errors=True) as name:
        folder = Path(name)
        with (folder / _OWNER).open("w") as owner:
            fcntl.flock(owner, fcntl.LOCK_EX)
            yield folder


def _remove_orphans() -> None:
    for owner in Path(tempfile.gettempdir()).glob(f"{_PREFIX}*/{_OWNER}"):
        try:
            with owner.open("r+") as file:  # another user's is not ours to open
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if time.time() - owner.stat().st_mtime > _GRACE:
                    shutil.rmtree(owner.parent, ignore_errors=True)
        except OSError:  # in use, not ours, or gone by now
            continue
