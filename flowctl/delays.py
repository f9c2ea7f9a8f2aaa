"""Random delays around each read and write of a transaction log or a commits table, so that concurrency tests see
every interleaving. They change nothing else. Outside tests, :func:`pause` costs one environment lookup."""

from __future__ import annotations

import os
import random
import time

#: Environment variable with the maximum delay in seconds.
KEY = "FLOWCTL_TEST_DELAYS"


def pause() -> None:
    """Sleeps for a random time of at most ``FLOWCTL_TEST_DELAYS`` seconds."""
    if longest := os.environ.get(KEY):
        time.sleep(random.random() * float(longest))
