"""The class-data archive (CDS): written once, it spares a JVM loading and verifying the same classes at each start.

It is bound to one Java and one class path, so its name is derived from both; if it does not match, the JVM starts
without it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from flowctl.engine import jars, java


def file_for(found: java.Java, class_path: Sequence[Path]) -> Path:
    """The path of the archive for this Java, pyspark and class path, whether it exists or not. The JVM compares paths
    and times of all jars, so another virtual environment, or the same one created again, needs another archive."""
    bound_to = [found.version, str(found.home), *map(_identity, [jars.spark_jars(), *class_path])]
    digest = hashlib.sha256("\n".join(bound_to).encode()).hexdigest()[:16]
    return jars.home() / "class-data" / f"{digest}.jsa"


def class_path_for(found: java.Java, needed: Sequence[Path]) -> tuple[list[Path], Path | None]:
    """The jars to start with, and their archive. After ``flowctl setup`` these are always all jars: one archive then
    fits every flow, and unused jars cost nothing. After ``flowctl setup SPEC`` they are those of that flow."""
    everything = jars.files_of(jars.sets())
    archive = file_for(found, everything)
    if archive.is_file() and jars.present():
        return everything, archive
    own = file_for(found, needed)
    return list(needed), own if own.is_file() else None


def _identity(path: Path) -> str:
    """Path and time in whole seconds: container layers keep no fractions, and the JVM compares none."""
    return f"{path} {int(path.stat().st_mtime) if path.exists() else 0}"
