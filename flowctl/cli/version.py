"""The versions that decide what a run does, without importing Spark or starting a JVM to run it."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

import flowctl


def version_lines() -> list[str]:
    """``name version``, one a line."""
    return [
        f"flowctl {flowctl.__version__}",
        f"Spark {_distribution('pyspark')}",
        f"Delta {_distribution('delta-spark')}",
        f"Java {_java()}",
    ]


def _distribution(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"


def _java() -> str:
    """From the ``release`` file of JAVA_HOME or of the ``java`` on the path: reading it takes no time at all."""
    home = os.environ.get("JAVA_HOME")
    executable = str(Path(home, "bin", "java")) if home else shutil.which("java")
    if not executable or not Path(executable).exists():
        return "not found"
    release = Path(executable).resolve().parent.parent / "release"
    if release.is_file() and (found := re.search(r'JAVA_VERSION="([^"]+)"', release.read_text(encoding="utf-8"))):
        return found[1]
    answer = subprocess.run([executable, "-version"], capture_output=True, text=True, check=False, timeout=30)
    found = re.search(r'version "([^"]+)"', answer.stderr)
    return found[1] if found else "unknown"
