"""The class-data archive: classes that a JVM otherwise loads and verifies anew at each start, written once.

It is bound to one Java and one class path, so its name has both; a JVM to which it does not fit starts without it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path

from flowctl.engine import jars, java


def file_for(found: java.Java, class_path: Sequence[Path]) -> Path:
    """Where the archive for this Java, this pyspark and this class path is, or would be. The JVM compares paths and
    times of all jars, so another virtual environment, or the same one created again, needs another archive."""
    bound_to = [found.version, str(found.home), *map(_identity, [jars.spark_jars(), *class_path])]
    digest = hashlib.sha256("\n".join(bound_to).encode()).hexdigest()[:16]
    return jars.home() / "class-data" / f"{digest}.jsa"


def class_path_for(found: java.Java, needed: Sequence[Path]) -> tuple[list[Path], Path | None]:
    """The jars to start with, and their archive. Where ``flowctl setup`` has run that is always the whole set: one
    archive then fits every flow, and jars that nothing loads from cost nothing."""
    everything = jars.files_of(jars.sets())
    archive = file_for(found, everything)
    if archive.is_file() and jars.present():
        return everything, archive
    return list(needed), None


def _identity(path: Path) -> str:
    """Whole seconds: container layers keep no finer times, and the JVM compares none."""
    return f"{path} {int(path.stat().st_mtime) if path.exists() else 0}"
