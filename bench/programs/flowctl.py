"""flowctl's own command line, with the specs a user would write."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from bench.case import Command, Competitor, Relation, Setting
from bench.contents import delta

#: The contents of a case's spec, without ``version``, ``flow`` and ``state``.
Spec = Callable[[Setting], Mapping[str, Any]]

_INVALID_SPEC = 3
#: A JVM server compiles hot code; after this many runs its times hardly improve.
_REHEARSALS = 4

#: A connection to a folder next to the spec.
LAKE = {"type": "delta", "path": "lake"}

LOCAL = "defaults: nothing is set but what the case needs"


def apply(spec: Spec, spark: Callable[[Setting], str] = lambda _: "") -> Callable[[Setting], Command]:
    """``flowctl apply`` of the spec in the competitor's folder; state and target are next to it."""

    def command(setting: Setting) -> Command:
        write(setting, spec, spark(setting))
        return flowctl(setting, "apply", "flow.yaml")

    return command


def flowctl(setting: Setting, *arguments: str) -> Command:
    return Command((sys.executable, "-m", "flowctl", *arguments), cwd=setting.folder)


def write(setting: Setting, spec: Spec, spark: str = "") -> Path:
    """Writes the spec as JSON, which is valid YAML."""
    document: dict[str, Any] = {"version": 1, "flow": "bench", "state": "state", **spec(setting)}
    if spark:
        document["spark"] = {"url": spark}
    file = setting.folder / "flow.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(document, indent=1))
    return file


def postgres(url: str) -> dict[str, str]:
    """A connection; the password is a reference to the environment."""
    return {"type": "postgres", "url": _with_reference(url, "BENCH_PASSWORD")}


def mysql(url: str) -> dict[str, str]:
    """The same for MySQL and MariaDB."""
    return {"type": "mysql", "url": _with_reference(url, "BENCH_MYSQL_PASSWORD")}


def _with_reference(url: str, variable: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.username}:${{secret:env:{variable}}}@{parts.hostname}:{parts.port}{parts.path}"


def in_lake(table: str, where: str = "true") -> Callable[[Setting], tuple[Relation, ...]]:
    """flowctl's result: a folder below the connection's path."""
    return lambda setting: (delta(setting.folder / "lake" / table, where),)


def on_spark(spec: Spec, **more: Any) -> Competitor:
    return Competitor("flowctl", f"Apache Spark in the process' own JVM; {LOCAL}", apply(spec), ours=True, **more)


def on_sail(spec: Spec, **more: Any) -> Competitor:
    return Competitor(
        "flowctl on Sail",
        "`spark: {url: sail}`, otherwise the same spec",
        apply(spec, lambda _: "sail"),
        missing=_refused_by_sail(spec),
        ours=True,
        **more,
    )


def on_connect(spec: Spec, **more: Any) -> Competitor:
    return Competitor(
        "flowctl on Connect",
        "`spark: {url: sc://…}`, a `flowctl spark-server` with 1 GiB of heap that was started before and has run the"
        f" same work {_REHEARSALS} times",
        apply(spec, lambda setting: setting.world.connect),
        ours=True,
        rehearsals=_REHEARSALS,
        **more,
    )


def _refused_by_sail(spec: Spec) -> Callable[[Setting], str]:
    """Why Sail cannot run the spec, in the words of ``flowctl plan``, which also inspects the source."""

    def missing(setting: Setting) -> str:
        if importlib.util.find_spec("pysail") is None:
            return "pysail is not installed"
        file = write(setting, spec, "sail")
        command = [sys.executable, "-m", "flowctl", "plan", str(file)]
        ran = subprocess.run(command, capture_output=True, text=True, cwd=setting.folder)
        said = (ran.stdout + ran.stderr).strip().splitlines()
        refused = [line.partition("error: ")[2] or line for line in said if "Sail" in line] or said[-1:]
        return f"flowctl refuses it: {refused[0].strip()}" if ran.returncode == _INVALID_SPEC else ""

    return missing
