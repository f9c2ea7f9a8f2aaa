"""The broken specs of `tests/golden/spec`, with what the command line and the environment add to some."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parents[1] / "golden" / "spec"
CASES = sorted(folder.name for folder in GOLDEN.iterdir())


def enter(case: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Makes the case's folder the current one and sets its variables; returns what `--connection` gives, by name."""
    monkeypatch.chdir(GOLDEN / case)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(GOLDEN / case / "none"))
    file = Path("given.json")
    given = json.loads(file.read_text(encoding="utf-8")) if file.exists() else {}
    for name, value in given.get("environment", {}).items():
        monkeypatch.setenv(name, value)
    connections: dict[str, str] = given.get("connections", {})
    return connections
