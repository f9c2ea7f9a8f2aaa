"""Finding the Java that Spark and Ivy run on."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from flowctl.errors import EngineFailed

#: Spark 4.1 is built for Java 17 and tested on 17 and 21.
OLDEST = 17
_INSTALL = "Install a headless JRE (Debian: apt-get install openjdk-17-jre-headless) or point JAVA_HOME at one"


@dataclass(frozen=True)
class Java:
    """One Java runtime. ``version`` is its full text (``17.0.15+6-Debian-1deb12u1``), to which archives are bound."""

    command: Path
    version: str

    @property
    def major(self) -> int:
        return int(self.version.split(".")[0].split("+")[0])

    @property
    def home(self) -> Path:
        return self.command.resolve().parent.parent


def find() -> Java:
    """The Java of ``JAVA_HOME``, otherwise the first on the path, like Spark's own scripts; :class:`EngineFailed` if
    there is none or it is too old."""
    home = os.environ.get("JAVA_HOME")
    found = shutil.which(str(Path(home, "bin", "java"))) if home else shutil.which("java")
    if found is None:
        where = f"JAVA_HOME is {home}, which has no bin/java" if home else "no java on the path"
        raise EngineFailed(f"Spark needs Java {OLDEST} or newer: {where}", hint=_INSTALL)
    java = Java(Path(found), _version(Path(found)))
    if java.major < OLDEST:
        raise EngineFailed(f"Spark needs Java {OLDEST} or newer: {found} is {java.version}", hint=_INSTALL)
    return java


def _version(command: Path) -> str:
    """The version, from the ``release`` file next to ``bin`` if it exists: starting a JVM for it takes at least
    40 ms."""
    release = command.resolve().parent.parent / "release"
    pattern = r'JAVA_RUNTIME_VERSION="([^"]+)"'
    if release.is_file() and (match := re.search(pattern, release.read_text())):
        return match[1]
    settings = subprocess.run([command, "-XshowSettings:properties", "-version"], capture_output=True, text=True)
    if match := re.search(r"java\.runtime\.version = (\S+)", settings.stderr):
        return match[1]
    raise EngineFailed(f"{command} does not report its version: {settings.stderr.strip()[-200:]}", hint=_INSTALL)
