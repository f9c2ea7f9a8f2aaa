"""What a server refuses before it starts a JVM, and whom it warns."""

from __future__ import annotations

import socket

import pytest

from flowctl.cli import main
from flowctl.engine import server as spark_server
from flowctl.engine.server import TOKEN_VARIABLE, Address, serve
from flowctl.errors import ExitCode
from flowctl.spec.spec import SparkSettings


@pytest.fixture(autouse=True)
def no_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    def started(*_: object, **__: object) -> None:
        raise AssertionError("a JVM was started")

    monkeypatch.setattr(spark_server, "open_engine", started)


def test_a_taken_port_is_told_before_anything_is_started(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        assert main.run(["spark-server", "--port", str(port)]) == ExitCode.BROKEN
    assert f"127.0.0.1:{port} is taken" in capsys.readouterr().err


def test_an_address_of_another_machine_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["spark-server", "--bind", "192.0.2.1"]) == ExitCode.BROKEN
    assert "Cannot listen at 192.0.2.1:15002" in capsys.readouterr().err


@pytest.mark.parametrize(
    "name", ["spark.hadoop.fs.s3a.secret.key", "spark.hadoop.fs.s3a.access.key", "spark.connect.authenticate.token"]
)
def test_secrets_are_not_taken_on_the_command_line(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["spark-server", "--conf", f"{name}=planted-4711"]) == ExitCode.USAGE
    told = capsys.readouterr().err
    assert name in told and "planted-4711" not in told


@pytest.mark.parametrize("url", ["sail", "sc://127.0.0.1:15002"])
def test_it_starts_no_other_kind_of_spark(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["spark-server", "--url", url]) == ExitCode.USAGE
    assert url in capsys.readouterr().err


@pytest.mark.parametrize(
    ("host", "token", "warning"),
    [
        ("127.0.0.1", "", None),
        ("localhost", "", None),
        ("::1", "", None),
        ("0.0.0.0", "", "does not authenticate clients"),
        ("0.0.0.0", "planted-4711", f"anyone who has {TOKEN_VARIABLE} and reaches"),
    ],
)
def test_whoever_else_may_reach_it_is_said(
    host: str, token: str, warning: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(TOKEN_VARIABLE, token)
    monkeypatch.setattr(spark_server, "_require_free", lambda _: None)
    told: list[str] = []
    with pytest.raises(AssertionError, match="a JVM was started"):
        serve(SparkSettings(), Address(host, 0), told.append, say=told.append)
    assert [warning in line for line in told if warning] == ([True] if warning else [])
    assert not any("planted-4711" in line for line in told)
