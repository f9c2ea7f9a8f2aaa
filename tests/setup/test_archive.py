"""The class-data archive: built by `flowctl setup`, used by the sessions that follow."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from flowctl.engine import archive, jars, java
from flowctl.spec.spec import SparkSettings

pytestmark = pytest.mark.server


def test_the_archive_is_bound_to_java_and_class_path() -> None:
    one, other = java.Java(Path("/a/bin/java"), "17.0.1"), java.Java(Path("/a/bin/java"), "17.0.2")
    path = [Path("/x.jar"), Path("/y.jar")]
    assert archive.file_for(one, path) == archive.file_for(one, path)
    assert len({archive.file_for(one, path), archive.file_for(other, path), archive.file_for(one, path[::-1])}) == 3


def test_a_pyspark_installed_anew_needs_another_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The JVM would refuse the old one in silence, and every start would be slow."""
    found = java.find()
    here = archive.file_for(found, [])
    monkeypatch.setattr(jars, "spark_jars", lambda: tmp_path)
    elsewhere = archive.file_for(found, [])
    os.utime(tmp_path, (1, 1))
    assert len({here, elsewhere, archive.file_for(found, [])}) == 3


def test_without_an_archive_only_the_needed_jars_are_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FLOWCTL_HOME", str(tmp_path))
    assert archive.class_path_for(java.find(), [Path("/x.jar")]) == ([Path("/x.jar")], None)


@pytest.mark.full
@pytest.mark.parametrize("sets", [None, ["delta"]], ids=["everything", "one flow"])
def test_setup_builds_it_and_sessions_load_their_classes_from_it(
    sets: list[str] | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fetched = jars.ensure(sets or jars.sets())
    monkeypatch.setenv("FLOWCTL_HOME", str(tmp_path))
    (tmp_path / "jars").mkdir()
    for file in fetched:
        shutil.copy(file, tmp_path / "jars")
    spec = tmp_path / "spec.yaml"
    spec.write_text(
        "version: 1\nflow: f\nstate: state\nconnections: {lake: {type: delta, path: lake}}\n"
        'tables:\n  t: {from: "lake:a", to: "lake:b", mode: truncate}\n'
    )
    monkeypatch.setenv("FLOWCTL_IVY_SETTINGS", "/nowhere")
    subprocess.run([sys.executable, "-m", "flowctl", "setup", *([spec] if sets else [])], check=True)
    classes = tmp_path / "classes.txt"
    options = f"-Xlog:class+load=info:file={classes}"
    settings = SparkSettings("local[1]", {"spark.driver.memory": "1g", "spark.driver.extraJavaOptions": options})
    # In a process of its own: the shared Spark of this one is no neighbour for it.
    code = f"""
from flowctl.connectors import registry
from flowctl.engine.start import open_engine
from flowctl.spec.spec import SparkSettings
with open_engine({settings!r}, ["delta"], {{}}, "large", extensions=registry.extensions()) as engine:
    engine.spark.range(5).write.format("delta").save({str(tmp_path / "table")!r})
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    told = classes.read_text().splitlines()
    from_archive = sum("shared objects file (top)" in line for line in told)
    assert from_archive > 10 * sum("source: jar" in line or "source: file" in line for line in told)
