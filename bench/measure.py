"""Measures one command: wall time, CPU time and memory of its process and all descendants."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path

from bench.case import Command, Measured

_ROOT = Path(__file__).parents[1]


class CommandFailed(Exception):
    """Contains the end of the command's output."""


def measure(
    command: Command, output: Path, services: Mapping[str, int] | None = None, longest: float = 3600.0
) -> Measured:
    """Runs ``command`` to its end and writes what it prints to ``output``. ``services`` are processes that are already
    running, by name; their CPU time is counted separately. After ``longest`` seconds the command is killed. Raises
    :class:`CommandFailed`."""
    request = {
        "argv": command.argv,
        "cwd": str(command.cwd),
        "env": dict(command.env),
        "output": str(output),
        "scratch": str(command.scratch) if command.scratch else None,
        "services": dict(services or {}),
        "longest": longest,
    }
    supervisor = [sys.executable, str(_ROOT / "bench" / "supervise.py")]
    ran = subprocess.run(supervisor, input=json.dumps(request), capture_output=True, text=True)
    if ran.returncode != 0:
        raise CommandFailed(ran.stderr.strip()[-1000:])
    answer = json.loads(ran.stdout)
    if answer["seconds"] > longest:
        raise CommandFailed(f"not done after {longest:,.0f} s")
    if answer["code"] != 0:
        raise CommandFailed(f"exit code {answer['code']}: {_end(output)}")
    return Measured(**{each.name: answer[each.name] for each in fields(Measured)})


def _end(output: Path) -> str:
    lines = [line.strip() for line in output.read_text(errors="replace").splitlines() if line.strip()]
    return " / ".join(lines[-4:])[-700:]
