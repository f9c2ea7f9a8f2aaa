"""How a batch changes its target."""

from __future__ import annotations

from typing import Literal

Mode = Literal["append", "truncate", "merge", "scd2"]
