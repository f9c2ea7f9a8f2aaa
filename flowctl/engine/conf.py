"""The settings of a Spark application: pure functions of the spec, the machine and the size of the run."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from flowctl.engine.cost import Size
from flowctl.engine.session import INTERPRETED
from flowctl.spec.spec import SparkSettings

_HERE = Path(__file__).parent
_MIB = 1024 * 1024

#: Settings that keep values exact, prevent implicit schema changes, and keep SQL text literal: statements contain names
#: and key bounds, where `${…}` would otherwise read a setting or an environment variable. The same in every session;
#: users cannot change them.
INVARIANTS: Mapping[str, str] = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.storeAssignmentPolicy": "STRICT",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.variable.substitute": "false",
    "spark.sql.parser.quotedRegexColumnNames": "false",
}

#: Invariants that must keep their default, and are never set, because Spark logs a warning even if the value is the
#: default. Otherwise, an escaped backslash in a string literal would be two.
_NEVER_SET = ("spark.sql.parser.escapedStringLiterals",)


@dataclass(frozen=True)
class Extension:
    """What a connector adds to Spark: settings of the ``application``, which the owner of a Spark Connect server sets;
    those of each ``session``; ``invariants``, like :data:`INVARIANTS`; and ``partitions``, the settings for the number
    of tasks of the extension's own small queries. If it is installed, ``spark.sql.extensions`` contains ``sign``."""

    name: str
    sign: str
    application: Mapping[str, str]
    session: Mapping[str, str]
    invariants: Mapping[str, str]
    partitions: tuple[str, ...]


#: Spark's default, INT96, is deprecated and has no statistics in Parquet.
_EXACT_TIMES = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}

# The optimizing compiler (C2) compiles code that runs for each row, which reaches these thresholds within a second, but
# not code that a start runs a few thousand times and never again: that takes a third of a cold start's CPU time.
_LATE_C2 = (
    "-XX:Tier4InvocationThreshold=100000",
    "-XX:Tier4MinInvocationThreshold=50000",
    "-XX:Tier4CompileThreshold=200000",
    "-XX:Tier4BackEdgeThreshold=1000000",
)
# With C1 alone, the code cache is 48 MB by default; when it is full, the compiler stops.
_JVM: Mapping[Size, tuple[str, ...]] = {
    "small": ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:ReservedCodeCacheSize=240m"),
    "medium": ("-XX:TieredStopAtLevel=1", "-XX:+UseParallelGC", "-XX:ReservedCodeCacheSize=240m"),
    "large": ("-XX:+UseParallelGC", "-XX:ReservedCodeCacheSize=240m", *_LATE_C2),
}
# Young generation per task slot. With the JVM's default, a third of the heap, a bulk load touches most of that memory
# only once: a tenth of its time was spent in the kernel, zeroing pages.
_YOUNG_MIB = 512
# Unless its log is redirected, the JVM reports an archive that does not match on standard output, which would corrupt
# `--format json`.
_QUIET = ("-Xlog:disable", "-Xlog:all=error:stderr", "-XX:-UsePerfData")
# Relocating the archive to another address than it was written for costs 0.3 s at each start.
_UNMOVED = ("-XX:+UnlockDiagnosticVMOptions", "-XX:ArchiveRelocationMode=0")


@dataclass(frozen=True)
class Machine:
    """The resources that this process may use: whole cores, and memory in bytes."""

    cores: int
    memory: int


def this_machine() -> Machine:
    """Cores by CPU affinity; memory is the smaller of the machine's and the cgroup's limit."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    for limit in (Path("/sys/fs/cgroup/memory.max"), Path("/sys/fs/cgroup/memory/memory.limit_in_bytes")):
        if limit.is_file() and (text := limit.read_text().strip()).isdigit():
            memory = min(memory, int(text))
    return Machine(cores, memory)


def is_local(url: str) -> bool:
    return url.startswith("local")


def is_connect(url: str) -> bool:
    return url.startswith("sc://")


def is_sail(url: str) -> bool:
    return url == "sail"


def conf_for(
    settings: SparkSettings,
    size: Size,
    machine: Machine,
    jars: Sequence[Path],
    scratch: Path,
    extensions: Collection[Extension] = (),
    archive: Path | None = None,
) -> dict[str, str]:
    """The settings a classic application starts with. ``scratch`` is this run's own folder for Spark's temporary files.
    The spec's ``spark.conf`` overrides what is chosen here, and the invariants override both; JVM options and class
    paths are joined. The result must not contain credentials, because it is passed on a command line."""
    chosen = {
        "spark.master": settings.url,
        "spark.app.name": "flowctl",
        "spark.submit.deployMode": "client",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.scheduler.mode": "FAIR",
        "spark.scheduler.allocation.file": (_HERE / "fair_scheduler.xml").as_uri(),
        "spark.sql.catalogImplementation": "in-memory",
        "spark.sql.warehouse.dir": (scratch / "warehouse").as_uri(),
        "spark.driver.memory": f"{_heap(settings.url, size, machine)}m",
        "spark.driver.extraClassPath": os.pathsep.join(map(str, jars)),
    }
    if is_local(settings.url):
        cores = local_cores(settings.url, machine)
        chosen |= {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.local.dir": str(scratch / "blocks"),
            "spark.sql.shuffle.partitions": str(cores),
        }
    else:
        chosen["spark.jars"] = ",".join(jar.as_uri() for jar in jars)
    conf = chosen | session_conf(settings, size, extensions)
    if is_local(settings.url):
        for name in (name for extension in extensions for name in extension.partitions):
            conf.setdefault(name, conf["spark.sql.shuffle.partitions"])
    own_class_path = settings.conf.get("spark.driver.extraClassPath")
    if own_class_path:
        conf["spark.driver.extraClassPath"] = os.pathsep.join([chosen["spark.driver.extraClassPath"], own_class_path])
    if "spark.jars" in chosen and settings.conf.get("spark.jars"):
        conf["spark.jars"] = f"{chosen['spark.jars']},{settings.conf['spark.jars']}"
    conf["spark.driver.extraJavaOptions"] = _java_options(settings, size, machine, archive)
    return {key: value for key, value in conf.items() if value}


def session_conf(settings: SparkSettings, size: Size, extensions: Collection[Extension]) -> dict[str, str]:
    """The settings of a session, which a Spark Connect client sets too: chosen ones, overridden by the spec's own, then
    by the invariants."""
    own = {name: value for name, value in settings.conf.items() if name not in _NEVER_SET}
    if is_sail(settings.url):
        return own | dict(INVARIANTS)
    chosen = dict(_EXACT_TIMES)
    if size == "small" and not is_connect(settings.url):
        chosen |= INTERPRETED
    if size != "large" and is_local(settings.url):
        # Replanning a short query while it runs takes longer than a better plan would save.
        chosen["spark.sql.adaptive.enabled"] = "false"
    invariants = dict(INVARIANTS)
    for extension in extensions:
        chosen |= extension.session if is_connect(settings.url) else {**extension.session, **extension.application}
        if size == "small":
            chosen |= dict.fromkeys(extension.partitions, "2")
        invariants |= extension.invariants
    conf: dict[str, str] = chosen | own | invariants
    own_extensions = settings.conf.get("spark.sql.extensions")
    if own_extensions and "spark.sql.extensions" in chosen:
        conf["spark.sql.extensions"] = f"{chosen['spark.sql.extensions']},{own_extensions}"
    return conf


def local_cores(url: str, machine: Machine) -> int:
    """Task slots of ``local``, ``local[4]``, ``local[*]``, ``local[4,2]``."""
    match = re.fullmatch(r"local(?:\[(\*|\d+)(?:,\s*\d+)?\])?", url)
    if match is None or match[1] == "*":
        return machine.cores
    return int(match[1] or 1)


def _heap(url: str, size: Size, machine: Machine) -> int:
    """The driver's heap in MiB. In local mode, the driver is the executor too. Always below 32 GB, above which object
    pointers double in size."""
    share, most = (0.25, 2048) if size == "small" else (0.5, 30720)
    if not is_local(url):
        share, most = 0.25, 4096
    return max(768, min(most, int(machine.memory * share) // _MIB))


def _java_options(settings: SparkSettings, size: Size, machine: Machine, archive: Path | None) -> str:
    options = [*_JVM[size], *_QUIET, f"-Dlog4j2.configurationFile={(_HERE / 'log4j2.properties').as_uri()}"]
    # Not if the spec sets the heap: in 1 GB, the young generation could take all of it.
    if is_local(settings.url) and size != "small" and "spark.driver.memory" not in settings.conf:
        young = min(_heap(settings.url, size, machine) // 3, _YOUNG_MIB * local_cores(settings.url, machine))
        options.append(f"-XX:MaxNewSize={young}m")
    if archive is not None:
        options += [f'"-XX:SharedArchiveFile={archive}"', "-Xshare:auto", *_UNMOVED]
    return " ".join([*options, settings.conf.get("spark.driver.extraJavaOptions", "")]).strip()
