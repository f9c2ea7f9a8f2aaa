"""How many examples a property test draws."""

from __future__ import annotations

import os

#: `make test-full` draws so many times what `make test` does.
_TIMES = int(os.environ.get("FLOWCTL_TEST_EXAMPLES", "1"))


def examples(count: int) -> int:
    return count * _TIMES
