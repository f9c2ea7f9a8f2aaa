"""What becomes of a command whose standard streams are closed, full, or read by nobody: nothing depends on them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from flowctl.errors import ExitCode

#: A command that shows something, does something, shows more, and ends with the code of a policy that stopped it.
PROBE = """
import sys, click
from flowctl.cli import main, output, validate
from flowctl.errors import StoppedByPolicy

@click.command()
def acting():
    output.write_lines([])
    output.write_result("planned " * output.width())
    with open("done", "x") as done:
        done.write(str(done.fileno()))
    output.write_line("busy")
    output.write_json({"result": "done"})
    raise StoppedByPolicy("too many rows", hint="Look")

validate.command = acting
main.main(["validate"])
"""
ASKING = """
from flowctl.cli import main, output, validate
import click

validate.command = click.Command("asking", callback=lambda: output.require_consent("Write this?", yes=False))
main.main(["validate"])
"""


def _run(probe: str, redirected: str, folder: Path) -> subprocess.CompletedProcess[str]:
    shell = f'set -o pipefail; "$0" -c "$1" {redirected}'
    command = ["bash", "-c", shell, sys.executable, probe]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize("redirected", [">&-", "2>&-", "<&- >&- 2>&-", "| true", "2>&1 | true", "2>/dev/full"])
def test_a_command_ends_as_if_it_were_read(tmp_path: Path, redirected: str) -> None:
    ended = _run(PROBE, redirected, tmp_path)
    assert ended.returncode == ExitCode.STOPPED
    assert "defect" not in ended.stderr
    assert int((tmp_path / "done").read_text()) > 2  # no file takes the number of a closed stream


def test_a_full_disk_is_named_once_the_command_has_ended(tmp_path: Path) -> None:
    ended = _run(PROBE, ">/dev/full", tmp_path)
    assert (ended.returncode, (tmp_path / "done").exists()) == (ExitCode.BROKEN, True)
    assert ended.stderr.splitlines() == [
        "busy",
        "error: too many rows. Look",
        "error: standard output could not be written: No space left on device; the command itself ran to its end. "
        "Make room there, or write to another place",
    ]


@pytest.mark.parametrize("redirected", ["<&-", "</dev/null"])
def test_without_an_answer_nothing_is_confirmed(tmp_path: Path, redirected: str) -> None:
    ended = _run(ASKING, redirected, tmp_path)
    assert ended.returncode == ExitCode.BROKEN
    why = "error: not confirmed: standard input has no answer. Use --yes to go without the question"
    assert ended.stderr.splitlines() == ["Write this? [y/N]: ", why]
