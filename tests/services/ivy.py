"""Jars from Maven Central, fetched with the Ivy of the pyspark wheel."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from flowctl.engine import java
from flowctl.engine.jars import spark_jars


def retrieve(wanted: Path, folder: Path) -> None:
    """Fetches the jars that the Ivy file ``wanted`` lists, with all that they need, into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    [ivy] = spark_jars().glob("ivy-*.jar")
    with tempfile.TemporaryDirectory(prefix="flowctl-ivy-") as cache:
        fetch = ["-ivy", str(wanted), "-cache", cache, "-warn"]
        fetch += ["-retrieve", f"{folder}/[artifact]-[revision](-[classifier]).[ext]"]
        subprocess.run([str(java.find().command), "-jar", str(ivy), *fetch], check=True, cwd=folder)
