"""What only a local disk does: it removes what a crash has left in a folder, and nothing else."""

from __future__ import annotations

import os
import time
from pathlib import Path

from flowctl.storage.disk import DiskStore

DAYS = 3 * 24 * 3600


def test_only_unfinished_files_of_its_own_are_removed(tmp_path: Path) -> None:
    kept = [".gitkeep", ".gitignore", ".nfs0000000000000001", ".1.json.0123456789abcdef0123456789abcde"]
    own = ".1.json.0123456789abcdef0123456789abcdef"
    young = ".2.json.0123456789abcdef0123456789abcdef"
    for name in (*kept, own, young):
        (tmp_path / name).touch()
    (tmp_path / ".git").mkdir()
    for name in (*kept, own, ".git"):
        os.utime(tmp_path / name, (0, time.time() - DAYS))
    assert DiskStore(str(tmp_path)).create("1.json", b"{}")
    assert {entry.name for entry in tmp_path.iterdir()} == {*kept, young, ".git", "1.json"}
