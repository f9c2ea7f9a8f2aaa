"""Folders for Spark's leftovers: ours go at the end, those of killed runs with the next one."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from flowctl.engine.scratch import scratch_folder

KILLED = """
import os, signal
from flowctl.engine.scratch import scratch_folder
with scratch_folder() as folder:
    print(folder, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    return tmp_path


def orphan(age_seconds: float) -> Path:
    left = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True).stdout.strip()
    folder = Path(left)
    assert folder.is_dir()
    then = time.time() - age_seconds
    os.utime(folder / "owner", (then, then))
    return folder


def test_a_folder_goes_with_its_run(temporary: Path) -> None:
    with scratch_folder() as folder:
        (folder / "blocks").mkdir()
        assert folder.parent == temporary
    assert list(temporary.iterdir()) == []


@pytest.mark.usefixtures("temporary")
def test_what_a_killed_run_left_goes_with_the_next_one_unless_it_is_too_young_to_tell() -> None:
    old, young = orphan(3600), orphan(0)
    with scratch_folder():
        assert not old.exists()
        assert young.exists()


@pytest.mark.usefixtures("temporary")
def test_what_another_run_uses_stays() -> None:
    with scratch_folder() as folder:
        os.utime(folder / "owner", (0, 0))
        with scratch_folder() as other:
            assert folder.exists() and other != folder
