"""The programs that flowctl is compared with, each in a virtual environment of its own below ``bench/.venvs``.

A peer's requirements file is next to this module. When it changes, the environment is recreated.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
_VENVS = HERE.parent / ".venvs"
#: ``check`` is not a peer: it reads the results for the comparison.
PEERS = ("dlt", "sling", "ingestr", "check")


class NotSetUp(Exception):
    """Something that the harness requires is not installed."""


def set_up() -> None:
    """Creates the environments that are missing or out of date."""
    for peer in PEERS:
        if not missing(peer):
            print(f"{peer}: ready")
            continue
        print(f"{peer}: installing …", flush=True)
        folder = _VENVS / peer
        shutil.rmtree(folder, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        quiet = ["-q", "--disable-pip-version-check"]
        subprocess.run([str(folder / "bin" / "pip"), "install", *quiet, "-r", str(_wanted(peer))], check=True)
        shutil.copy(_wanted(peer), folder / "installed.txt")


def missing(peer: str) -> str:
    """Why a peer cannot run; empty if it can."""
    installed = _VENVS / peer / "installed.txt"
    if installed.is_file() and installed.read_bytes() == _wanted(peer).read_bytes():
        return ""
    return f"{peer} is not set up: python -m bench setup"


def python(peer: str) -> str:
    return str(_VENVS / peer / "bin" / "python")


def file_of(peer: str, pattern: str) -> Path:
    """A file that belongs to one of the peer's packages. Raises :class:`NotSetUp` if it does not exist."""
    found = sorted((_VENVS / peer).glob(f"lib/python3*/site-packages/{pattern}"))
    if not found:
        raise NotSetUp(f"{pattern}: not in the environment of {peer}; run python -m bench setup")
    return found[0]


def postgres_program(name: str) -> str:
    """The path of a PostgreSQL program; Debian does not put them on ``PATH``."""
    installed = sorted(Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda file: int(file.parts[-3]))
    found = str(installed[-1]) if installed else shutil.which(name)
    if found is None:
        raise NotSetUp(f"{name}: PostgreSQL is not installed here; run scripts/install-system.sh")
    return found


def versions() -> dict[str, str]:
    """The pinned versions of the relevant packages."""
    shown = {
        "check": ["duckdb"],
        "dlt": ["connectorx", "deltalake", "dlt", "pyiceberg"],
        "ingestr": ["ingestr"],
        "sling": ["duckdb-cli", "sling-linux-amd64"],
    }
    return {name: pinned(peer, name) for peer, names in shown.items() for name in names}


def pinned(peer: str, package: str) -> str:
    """The version of a package in a peer's requirements."""
    lines = [line.split(";")[0].strip() for line in _wanted(peer).read_text().splitlines()]
    return dict(line.split("==") for line in lines if "==" in line)[package]


def _wanted(peer: str) -> Path:
    return HERE / f"{peer}.txt"
