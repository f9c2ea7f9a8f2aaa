"""Random delays around each read and write of a transaction log or a commits table, so that racing tests see every
order of arrival. Delays only: nothing else depends on them. Outside tests :func:`pause` is one look-up in the
environment."""

from __future__ import annotations

import os
import random
import time

#: The longest delay in seconds.
KEY = "FLOWCTL_TEST_DELAYS"


def pause() -> None:
    """Waits a random part of ``FLOWCTL_TEST_DELAYS`` seconds."""
    if longest := os.environ.get(KEY):
        time.sleep(random.random() * float(longest))
