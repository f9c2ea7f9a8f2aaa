"""`validate` says what `plan` refuses: without a connection what the spec alone tells, with one all of it."""

from __future__ import annotations

import os
import sqlite3
import sys
from pathlib import Path

import pytest

from flowctl.cli import main
from flowctl.errors import ExitCode
from flowctl.run.connect import needed_modules
from flowctl.spec.load import load_spec

SPEC = """\
version: 1
flow: shop
state: state
spark: {url: sail}
connections:
  db: {type: sqlite, path: shop.db}
  gone: {type: sqlite, path: gone.db}
  inbox: {type: files, path: inbox}
  lake: {type: delta, path: lake}
defaults: {to: lake}
tables:
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    database = sqlite3.connect("shop.db")
    database.executescript("CREATE TABLE orders (id INTEGER PRIMARY KEY, updated_at TIMESTAMP)")
    database.close()
    Path("inbox").mkdir()
    return tmp_path


def flowctl(capsys: pytest.CaptureFixture[str], command: str, table: str, *more: str) -> tuple[int, str]:
    Path("flow.yaml").write_text(SPEC + f"  {table}\n", encoding="utf-8")
    code = main.run([command, "flow.yaml", *more])
    printed = capsys.readouterr()
    return code, printed.out + printed.err


CONNECTED = [
    ("t: {from: db:orders, mode: merge, key: [nr]}", 'key column "nr"', ExitCode.STOPPED),
    ("t: {from: db:orders, mode: append, cursor: {column: at}}", '"at" is not a column', ExitCode.STOPPED),
    ("t: {from: db:orders, mode: truncate, columns: {exclude: [x]}}", '"x" is not a column', ExitCode.STOPPED),
    ("t: {from: db:ordres, mode: truncate}", "Did you mean `orders`?", ExitCode.TABLE),
    ("t: {from: gone:orders, mode: truncate}", "gone.db", ExitCode.TABLE),
    ('t: {from: "inbox:*.csv", mode: append}', "matches nothing", ExitCode.STOPPED),
    ('"t_${table}": {from: "db:x*", mode: truncate}', "matches nothing", ExitCode.STOPPED),
]


@pytest.mark.parametrize(("table", "told", "code"), CONNECTED)
def test_connect_finds_what_plan_stops_for_at_its_line_with_its_code(
    capsys: pytest.CaptureFixture[str], table: str, told: str, code: int
) -> None:
    assert flowctl(capsys, "validate", table)[0] == ExitCode.OK
    planned, text = flowctl(capsys, "plan", table)
    connected, diagnostics = flowctl(capsys, "validate", table, "--connect")
    assert (planned, connected) == (code, code)
    assert told in text and told in diagnostics and "flow.yaml:12:" in diagnostics


@pytest.mark.parametrize("table", ['t: {from: "inbox:*.csv", mode: append, allow_none: true}',
                                   '"t_${table}": {from: "db:x*", mode: truncate, allow_none: true}'])  # fmt: skip
def test_a_pattern_may_be_allowed_to_match_nothing(capsys: pytest.CaptureFixture[str], table: str) -> None:
    assert flowctl(capsys, "validate", table, "--connect")[0] == ExitCode.OK
    assert flowctl(capsys, "plan", table)[0] == ExitCode.OK


def test_allow_none_without_a_pattern_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    code, text = flowctl(capsys, "validate", "t: {from: db:orders, mode: truncate, allow_none: true}")
    assert code == ExitCode.SPEC and "`allow_none` has no meaning without a pattern" in text


@pytest.mark.parametrize(
    ("table", "told"),
    [
        (
            "t: {from: db:orders, mode: truncate, layout: {cluster_by: [id]}}",
            "layout.cluster_by is not supported on Sail",
        ),
        ('t: {from: {sql: "SELECT 1 AS one"}, mode: truncate}', "from is not supported on Sail"),
        (
            '"t_${table}": {from: "db:*", mode: truncate, columns: {add: {x: "1"}}}',
            "columns.add is not supported on Sail",
        ),
    ],
)
def test_what_the_spec_alone_tells_is_refused_without_a_connection(
    capsys: pytest.CaptureFixture[str], table: str, told: str
) -> None:
    """In the words and with the code of the plan."""
    for command in ("validate", "plan"):
        code, text = flowctl(capsys, command, table)
        assert code == ExitCode.SPEC and told in text


@pytest.mark.parametrize("prefix", ["file://lake", "memory://lake"])
def test_credentials_that_nothing_uses_are_refused(capsys: pytest.CaptureFixture[str], prefix: str) -> None:
    keys = '{access_key: "${secret:env:AK}", secret_key: "${secret:env:SK}"}'
    table = f't: {{from: db:orders, mode: truncate}}\nstorage:\n  "{prefix}": {keys}'
    for command in ("validate", "plan"):
        code, text = flowctl(capsys, command, table)
        assert code == ExitCode.SPEC and "credentials are for object storage only" in text


def test_connect_notices_that_there_is_no_java(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    monkeypatch.setattr(sys.modules[__name__], "SPEC", SPEC.replace("sail", '"local[2]"'))
    code, text = flowctl(capsys, "validate", "t: {from: db:orders, mode: truncate}", "--connect")
    assert code == ExitCode.BROKEN and "JAVA_HOME is /nowhere" in text


@pytest.mark.parametrize("place", ["lake", "state"])
def test_connect_notices_what_cannot_be_written(capsys: pytest.CaptureFixture[str], place: str) -> None:
    """A file where a folder should be stops every user; a folder without the right for it only those but root."""
    Path(place).write_text("no folder")
    code, text = flowctl(capsys, "validate", "t: {from: db:orders, mode: truncate}", "--connect")
    assert code in (ExitCode.TABLE, ExitCode.BROKEN) and f"{os.sep}{place}" in text


@pytest.mark.parametrize(
    ("target", "url", "needed"),
    [
        ("pg", "sc://spark:15002", ["psycopg", "pyarrow"]),
        ("pg", "spark://spark:7077", ["psycopg", "pyarrow"]),
        ("pg", "local[*]", []),
        ("pg", "sail", []),
        ("lake", "sc://spark:15002", []),
    ],
)
def test_executors_elsewhere_are_asked_for_what_the_targets_need(target: str, url: str, needed: list[str]) -> None:
    pg = 'pg: {type: postgres, url: "postgresql://db/shop"}'
    text = SPEC.replace("spark: {url: sail}", f'spark: {{url: "{url}"}}').replace("  lake:", f"  {pg}\n  lake:")
    Path("flow.yaml").write_text(f"{text}  t: {{from: db:orders, to: {target}, mode: truncate}}\n", encoding="utf-8")
    spec = load_spec(["flow.yaml"], {})
    assert needed_modules(spec, spec.tables) == needed


def test_executors_elsewhere_send_messages_only_at_least_once() -> None:
    bus = 'bus: {type: kafka, brokers: "b:9092", registry: {url: "http://registry"}}'
    text = SPEC.replace("url: sail", 'url: "sc://spark:15002"').replace("  lake:", f"  {bus}\n  lake:")
    avro = "topic: t, format: {type: avro}"
    once = f"  once: {{from: db:orders, to: {{connection: bus, {avro}}}, mode: append, cursor: {{column: id}}}}"
    Path("flow.yaml").write_text(f"{text}{once}\n", encoding="utf-8")
    spec = load_spec(["flow.yaml"], {})
    assert needed_modules(spec, spec.tables) == []
    Path("flow.yaml").write_text(f"{text}{once.replace(avro, f'{avro}, delivery: at_least_once')}\n", encoding="utf-8")
    spec = load_spec(["flow.yaml"], {})
    assert needed_modules(spec, spec.tables) == ["confluent_kafka", "fastavro", "flowctl", "pyarrow"]
