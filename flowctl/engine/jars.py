"""The jars that Spark needs in addition to its own: listed in ``ivy.xml``, fetched once with the Ivy that the pyspark
wheel ships, and checked by flowctl against ``jars.sha256`` each time they are used.

They are in ``$FLOWCTL_HOME/jars`` (default: the platform's cache folder). For an air-gapped machine, copy that folder
from another one; to use a private repository, name an Ivy settings file in ``FLOWCTL_IVY_SETTINGS``.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from flowctl.engine import java
from flowctl.errors import EngineFailed

if TYPE_CHECKING:
    from collections.abc import Mapping

_HERE = Path(__file__).parent
_IVY_FILE = _HERE / "ivy.xml"
_SUMS_FILE = _HERE / "jars.sha256"


def ensure(needed: Collection[str], say: Callable[[str], None] | None = None) -> list[Path]:
    """The files of these jar sets, in ``ivy.xml``'s order. Fetches missing ones under a lock and reports that through
    ``say`` (default: standard error). :class:`EngineFailed` if they cannot be fetched, or are not the pinned ones."""
    unknown = sorted(set(needed) - set(sets()))
    if unknown:
        raise EngineFailed(f"unknown jar sets {unknown}", hint=f"Choose from those in `ivy.xml`: {', '.join(sets())}")
    files = files_of(needed)
    if _missing(files):
        with _locked(home() / "jars"):
            # Another process may have fetched them while this one waited.
            if missing := [of for of in sets() if of in needed and _missing(files_of([of]))]:
                _fetch(missing, home() / "jars", say or _to_stderr)
    return files


def files_of(wanted: Collection[str]) -> list[Path]:
    """The paths of these jar sets' files, whether they exist or not, in ``ivy.xml``'s order."""
    return [home() / "jars" / name for of, names in sets().items() if of in wanted for name in names]


def home() -> Path:
    """The folder for what flowctl fetches or builds for this machine: jars and class-data archives."""
    if set_by_user := os.environ.get("FLOWCTL_HOME"):
        return Path(set_by_user).expanduser().absolute()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "flowctl"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "flowctl"


@cache
def sets() -> Mapping[str, tuple[str, ...]]:
    """Maps set names to file names, in ``ivy.xml``'s order."""
    tree = ElementTree.parse(_IVY_FILE).getroot()
    names: dict[str, list[str]] = {conf.attrib["name"]: [] for conf in tree.iter("conf")}
    for jar in tree.iter("dependency"):
        names[jar.attrib["conf"].split("->")[0]].append(f"{jar.attrib['name']}-{jar.attrib['rev']}.jar")
    return {of: tuple(files) for of, files in names.items()}


def present() -> bool:
    """Whether all jar sets are complete and intact, as after ``flowctl setup``."""
    return not _missing(files_of(sets()))


def _missing(files: Sequence[Path]) -> list[Path]:
    return [file for file in files if not (file.is_file() and _digest(file) == _sums()[file.name])]


@cache
def _sums() -> Mapping[str, str]:
    pairs = (line.split() for line in _SUMS_FILE.read_text().splitlines())
    return {name: digest for digest, name in pairs}


def _digest(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _fetch(wanted: Sequence[str], folder: Path, say: Callable[[str], None]) -> None:
    """Fetches into a temporary folder first, so that a jar under its final name is complete and verified."""
    say(f"Fetching the jars for {', '.join(wanted)} into {folder} (once, half a minute) …")
    with tempfile.TemporaryDirectory(dir=folder, prefix=".fetch-") as fresh:
        _retrieve(wanted, Path(fresh))
        for name in [name for of in wanted for name in sets()[of]]:
            file = Path(fresh, name)
            found = _digest(file) if file.is_file() else "nothing"
            if found != _sums()[name]:
                raise EngineFailed(
                    f"{name} is not the pinned jar: SHA-256 {found} instead of {_sums()[name]}",
                    hint="Check for a proxy or mirror that changes files of the Maven repository; nothing was kept",
                )
            file.replace(folder / name)
    say("Fetched and checked.")


def _retrieve(wanted: Sequence[str], into: Path) -> None:
    command = [str(java.find().command), "-jar", str(_ivy_jar()), "-warn", "-cache", str(into / "cache")]
    if settings := os.environ.get("FLOWCTL_IVY_SETTINGS"):
        command += ["-settings", settings]
    command += ["-ivy", str(_IVY_FILE), "-confs", *wanted, "-retrieve", f"{into}/[artifact]-[revision].[ext]"]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        lines = [line.strip() for line in (done.stdout + done.stderr).splitlines() if not line.startswith("\tat ")]
        raise EngineFailed(
            "Ivy could not fetch the jars: " + " | ".join(line for line in lines if line.strip(". "))[-1500:],
            hint="Check the connection to the Maven repository (proxy: JAVA_TOOL_OPTIONS; another repository: "
            "FLOWCTL_IVY_SETTINGS), or copy the jars folder from a machine that has it",
        )


def spark_jars() -> Path:
    """The folder of pyspark's own jars; found without importing pyspark, which costs half a second."""
    spec = find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise EngineFailed("pyspark is not installed here", hint="Install flowctl into this Python again")
    return Path(spec.origin).parent / "jars"


def _ivy_jar() -> Path:
    return sorted(spark_jars().glob("ivy-*.jar"))[0]


def _to_stderr(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
