"""What a result depends on: the machine, the versions, the commit."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path

from bench import peers

_ROOT = Path(__file__).parents[1]
_PACKAGES = ("flowctl", "pyspark", "delta-spark", "pyarrow", "pysail")


def machine() -> Mapping[str, str]:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    model = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return {
        "cores": str(len(os.sched_getaffinity(0))),
        "memory": f"{memory / (1 << 30):.1f} GiB",
        "processor": model[1] if model else platform.machine(),
        "kernel": platform.release(),
    }


def versions() -> Mapping[str, str]:
    """flowctl's packages as installed, the peers' as pinned."""
    found = {"Python": platform.python_version()}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    found["Java"] = _first_line("java", "-version")
    try:
        found["PostgreSQL"] = _first_line(peers.postgres_program("postgres"), "--version")
    except peers.NotSetUp:
        found["PostgreSQL"] = "none"
    return {name: _number(version) for name, version in found.items()} | peers.versions()


def commit() -> str:
    """The short hash, marked if flowctl or the benchmarks have uncommitted changes."""
    name = _git("rev-parse", "--short", "HEAD") or "unknown"
    changed = _git("status", "--porcelain", "--", "flowctl", "bench", ":!bench/RESULTS.md", ":!bench/results")
    return f"{name} with changes" if changed else name


def _git(*arguments: str) -> str:
    ran = subprocess.run(["git", *arguments], cwd=_ROOT, capture_output=True, text=True)
    return ran.stdout.strip() if ran.returncode == 0 else ""


def _first_line(*command: str) -> str:
    try:
        ran = subprocess.run(command, capture_output=True, text=True)
    except OSError:
        return "none"
    return (ran.stdout + ran.stderr).strip().splitlines()[0]


def _number(version: str) -> str:
    """The version number in text such as ``openjdk version "17.0.13" 2024-10-15``."""
    found = re.search(r"\d+(\.\d+)+\S*", version)
    return found[0].strip('"') if found else version
