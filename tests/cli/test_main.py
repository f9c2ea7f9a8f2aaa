"""The command line as a process sees it: exit codes, where output goes, what is imported."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest

from flowctl.cli import main, output
from flowctl.errors import ExitCode, LockedError, StoppedByPolicy
from flowctl.redaction import REDACTOR

VALID = """\
version: 1
flow: shop
state: state
connections:
  pg: {type: postgres, url: "postgresql://etl:${secret:env:PW}@db/shop"}
  lake: {type: delta, path: lake}
tables:
  orders: {from: pg:public.orders, to: lake, mode: merge, key: [id], cursor: {column: updated_at}}
"""
#: What must stay out of `validate`: Spark, Arrow, database drivers, cloud SDKs, and what takes long to import.
HEAVY = (
    "pyspark",
    "pyarrow",
    "pandas",
    "psycopg",
    "deltalake",
    "sqlglot",
    "fsspec",
    "s3fs",
    "boto3",
    "botocore",
    "hvac",
    "google",
    "azure",
)
SLOW = ("rich", "requests", "tenacity", "asyncio")


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "flow.yaml"
    path.write_text(VALID, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "arguments",
    [["bogus"], ["validate"], ["validate", "x.yaml", "--bogus"], ["validate", "x.yaml", "--var", "env"], ["--bogus"]],
    ids=" ".join,
)
def test_usage_errors_exit_64(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(arguments) == ExitCode.USAGE
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "Usage: flowctl" in printed.err


def test_a_mistyped_command_is_told_the_right_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["aply", "x.yaml"]) == ExitCode.USAGE
    assert "No such command 'aply'. Did you mean 'apply'?" in capsys.readouterr().err


def test_help_and_version_import_no_command() -> None:
    probe = (
        "import sys; from flowctl.cli import main\n"
        "codes = [main.run(['--help']), main.run(['--version'])]\n"
        "loaded = sorted(name for name in sys.modules if name.partition('.')[0] in ('pyspark', 'delta', 'pyarrow'))\n"
        "print(codes, loaded, 'flowctl.cli.validate' in sys.modules)"
    )
    answer = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    commands = ("validate", "plan", "apply", "state", "runs", "setup", "spark-server", "schema")
    for name in (*commands, "flowctl 0", "Spark 4", "Delta 4"):
        assert name in answer.stdout
    assert answer.stdout.splitlines()[-1] == "[0, 0] [] False"


@pytest.mark.parametrize("option", [[], ["--resolved"], ["--format", "json"]])
def test_validate_imports_nothing_heavy(spec: Path, option: list[str]) -> None:
    probe = (
        "import sys; from flowctl.cli import main\n"
        f"code = main.run(['validate', {str(spec)!r}, *{option!r}])\n"
        f"unwanted = {(*HEAVY, *SLOW)!r}\n"
        "print(code, sorted({name.partition('.')[0] for name in sys.modules} & set(unwanted)))"
    )
    answer = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert answer.stdout.splitlines()[-1] == "0 []"


def test_python_m_flowctl(spec: Path) -> None:
    answer = subprocess.run([sys.executable, "-m", "flowctl", "validate", spec], capture_output=True, text=True)
    assert (answer.returncode, answer.stdout, answer.stderr) == (0, f"{spec}: valid, 1 table\n", "")


def _fails_with(error: Exception) -> click.Command:
    @click.command("failing")
    def failing() -> None:
        raise error

    return failing


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (LockedError("locked", hint="Wait"), ExitCode.LOCKED),
        (StoppedByPolicy("too many", hint="Look"), ExitCode.STOPPED),
    ],
)
def test_errors_become_lines_and_exit_codes(
    error: LockedError, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _install(monkeypatch, _fails_with(error))
    assert main.run(["validate"]) == code
    assert capsys.readouterr().err == f"error: {error.message}. {error.hint}\n"


def test_errors_as_json_lines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    _install(monkeypatch, _fails_with(LockedError("locked", hint="Wait")))
    assert main.run(["validate", "--log-format", "json"]) == ExitCode.LOCKED
    written = json.loads(capsys.readouterr().err)
    assert written.pop("at")
    assert written == {"level": "error", "message": "locked", "hint": "Wait", "place": None}


def test_traces_only_when_asked_for(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    error = LockedError("locked")
    error.__cause__ = OSError("the cause")
    _install(monkeypatch, _fails_with(error))
    main.run(["validate"])
    assert "Traceback" not in capsys.readouterr().err
    main.run(["validate", "--verbose"])
    assert "OSError: the cause" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (
            PermissionError(13, "Permission denied", "plan.json"),
            "error: plan.json: Permission denied. Check the path and its permissions\n",
        ),
        (
            KeyError("orders"),
            "error: flowctl has a defect: KeyError: 'orders'. Run again with --verbose and report what it prints\n",
        ),
    ],
)
def test_what_nobody_foresaw_is_one_line_too(
    error: Exception, line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    _install(monkeypatch, _fails_with(error))
    assert main.run(["validate"]) == ExitCode.BROKEN
    assert capsys.readouterr().err == line
    main.run(["validate", "--verbose"])
    assert f"{type(error).__name__}: " in capsys.readouterr().err


def test_all_output_is_redacted(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    REDACTOR.register("planted-secret-1")

    @click.command("saying")
    def saying() -> None:
        output.redact_standard_streams()
        output.write_result("result planted-secret-1")
        output.write_line("line planted-secret-1")
        output.write_json({"json": "planted-secret-1"})
        print("print planted-secret-1")
        sys.stderr.writelines(["stderr planted-secret-1"])
        raise LockedError("error planted-secret-1", hint="hint planted-secret-1")

    _install(monkeypatch, saying)
    with monkeypatch.context() as streams:
        streams.setattr(sys, "stdout", sys.stdout)
        streams.setattr(sys, "stderr", sys.stderr)
        main.run(["validate", "--verbose"])
    printed = capsys.readouterr()
    assert "planted" not in printed.out + printed.err
    assert (printed.out.count("***"), printed.err.count("***") >= 5) == (3, True)


def _install(monkeypatch: pytest.MonkeyPatch, command: click.Command) -> None:
    from flowctl.cli import validate

    monkeypatch.setattr(validate, "command", command)
