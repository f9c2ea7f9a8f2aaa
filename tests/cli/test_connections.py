"""`--connection`, `FLOWCTL_CONN_NAME` and the user's file, as commands take and report them, on real files."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from flowctl.cli import main
from flowctl.errors import ExitCode

SPEC = """\
version: 1
flow: shop
state: state
spark: {url: sail}
connections:
  lake: {type: delta, path: lake}
  spare: {type: sqlite, path: spare.db}
defaults: {to: lake, mode: truncate}
tables:
  a: {from: a:t}
  b: {from: b:t}
  c: {from: c:t}
"""
GIVEN = ("--connection", "a=sqlite:shop.db")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.delenv("FLOWCTL_CONNECTIONS", raising=False)
    monkeypatch.setenv("FLOWCTL_CONN_B", "sqlite:shop.db")
    Path("flow.yaml").write_text(SPEC, encoding="utf-8")
    Path(".config/flowctl").mkdir(parents=True)
    Path(".config/flowctl/connections.yaml").write_text("connections:\n  c: {type: sqlite, path: shop.db}\n")
    with sqlite3.connect("shop.db") as database:
        database.executescript("CREATE TABLE t (id INTEGER PRIMARY KEY); INSERT INTO t VALUES (1), (2)")
    database.close()
    return tmp_path


def flowctl(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    code = main.run([*arguments])
    printed = capsys.readouterr()
    return code, printed.out + printed.err


def test_doctor_shows_where_each_connection_comes_from(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = flowctl(capsys, "doctor", "flow.yaml", *GIVEN)
    lines = [line.strip() for line in text.splitlines()]
    assert code == ExitCode.OK, text
    assert [line for line in lines if line.startswith("from ")] == [
        "from spec flow.yaml:6",
        "from spec flow.yaml:7",
        "from --connection",
        "from FLOWCTL_CONN_B",
        "from ~/.config/flowctl/connections.yaml:2",
    ]
    code, text = flowctl(capsys, "doctor", "flow.yaml", *GIVEN, "--format", "json")
    assert {one["name"]: one["origin"] for one in json.loads(text)["subjects"]} == {
        "lake": "spec flow.yaml:6",
        "spare": "spec flow.yaml:7",
        "a": "--connection",
        "b": "FLOWCTL_CONN_B",
        "c": "~/.config/flowctl/connections.yaml:2",
    }


def test_a_connection_that_does_not_answer_is_named_by_its_place(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOWCTL_CONN_B", "postgresql://etl:s3cret-b@127.0.0.1:9/shop")
    given = ("--connection", "a=postgresql://etl:s3cret-a@127.0.0.1:9/shop")
    code, text = flowctl(capsys, "doctor", "flow.yaml", *given, "--verbose")
    assert code == ExitCode.TABLE and "! --connection a=…" in text and "! FLOWCTL_CONN_B" in text, text
    assert "s3cret" not in text
    code, text = flowctl(capsys, "doctor", "flow.yaml", *given, "--format", "json")
    places = {(one["place"], one["file"], one["line"]) for one in json.loads(text)["errors"]}
    assert {("--connection a=…", None, None), ("FLOWCTL_CONN_B", None, None)} <= places
    assert "s3cret" not in text
    for command in (["validate", "flow.yaml", "--connect"], ["plan", "flow.yaml", "--verbose"]):
        code, text = flowctl(capsys, *command, *given)
        assert code == ExitCode.TABLE and "--connection a=…" in text and "s3cret" not in text


def test_what_a_connection_lacks_is_one_finding_of_doctor(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOWCTL_CONN_B", "postgresql://etl:${secret:env:NOT_SET}@127.0.0.1:9/shop")
    monkeypatch.delenv("NOT_SET", raising=False)
    code, text = flowctl(capsys, "doctor", "flow.yaml", *GIVEN)
    assert (code, text.count("NOT_SET that a secret refers to is not set")) == (ExitCode.TABLE, 1), text
    assert "answer" not in text  # it was not asked


def test_errors_have_their_place_in_every_format(capsys: pytest.CaptureFixture[str]) -> None:
    given = ("--connection", "a=sqlit:x", "--connection", "bb=sqlite:x")
    code, text = flowctl(capsys, "validate", "flow.yaml", *given)
    assert code == ExitCode.SPEC and "--connection bb=…: error: the spec has no connection `bb`. Did you" in text
    code, text = flowctl(capsys, "validate", "flow.yaml", *given, "--format", "github")
    assert code == ExitCode.SPEC and text.startswith("::error::--connection a=…: the connection is no URL.")
    code, text = flowctl(capsys, "validate", "flow.yaml", *given, "--format", "json")
    first = json.loads(text)["diagnostics"][0]
    assert (first["place"], first["file"], first["line"], first["column"]) == ("--connection a=…", None, None, None)


@pytest.mark.parametrize("given", ["hunter2", "postgresql://u:hunter2@db/x?sslmode=require", "=hunter2", "a b=hunter2"])
def test_what_is_not_name_and_url_is_a_usage_error_that_does_not_repeat_it(
    capsys: pytest.CaptureFixture[str], given: str
) -> None:
    code, text = flowctl(capsys, "plan", "flow.yaml", "--connection", given)
    assert code == ExitCode.USAGE and "write NAME=URL" in text and "hunter2" not in text


def test_the_effective_spec_has_the_places_and_no_secret(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FLOWCTL_CONN_B", "{type: postgres, host: db, database: d, password: s3cret-b}")
    given = ("--connection", "a=postgresql://etl:s3cret-a@db/shop")
    code, text = flowctl(capsys, "validate", "flow.yaml", "--resolved", *given)
    assert code == ExitCode.OK and "s3cret" not in text
    assert '    url: "postgresql://etl:***@db/shop"  # --connection a=…\n' in text
    assert '    password: "***"  # FLOWCTL_CONN_B\n' in text
    assert "    path: shop.db  # ~/.config/flowctl/connections.yaml:2\n" in text


def test_a_plan_repeats_the_connection_in_the_command_that_applies_it(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = flowctl(capsys, "plan", "flow.yaml", *GIVEN)
    assert code == ExitCode.OK and "flowctl apply flow.yaml --connection a=sqlite:shop.db" in " ".join(text.split())


COMMANDS = ("validate", "plan", "apply", "doctor", "maintain", "restore", "runs", "cuts", "dlq list", "dlq show",
            "dlq replay", "state list", "state show", "state history", "state set", "state reset",
            "state unlock")  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_that_reads_a_spec_takes_it(capsys: pytest.CaptureFixture[str], command: str) -> None:
    code, text = flowctl(capsys, *command.split(), "--help")
    assert code == ExitCode.OK and "--connection NAME=URL" in text
