"""`flowctl setup SPEC`: what one flow's engine needs, and nothing else. Jars that are there already are not fetched."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from flowctl.cli import main
from flowctl.engine import jars
from flowctl.errors import ExitCode

_SPEC = """\
version: 1
flow: shop
state: {state}
spark: {{url: "{url}"}}
connections:
  pg: {{type: postgres, url: "postgresql://db/shop"}}
  lake: {{type: delta, path: "{lake}"}}
  out: {{type: sqlite, path: out.db}}
tables:
  orders: {{from: "pg:public.orders", to: "{to}:orders", mode: truncate}}
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With no jar at all, and no way to fetch one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FLOWCTL_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FLOWCTL_IVY_SETTINGS", "/nowhere")
    return tmp_path


def spec(to: str = "lake", url: str = "local[*]", state: str = "state", lake: str = "lake") -> str:
    Path("spec.yaml").write_text(_SPEC.format(to=to, url=url, state=state, lake=lake))
    return "spec.yaml"


def setup(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[dict[str, Any], str]:
    code = main.run(["setup", "--no-archive", "--format", "json", *arguments])
    printed = capsys.readouterr()
    assert code == ExitCode.OK, printed.err
    return json.loads(printed.out), printed.err


def put(monkeypatch: pytest.MonkeyPatch, *sets: str) -> None:
    """These sets' jars into the empty home."""
    with monkeypatch.context() as here:
        here.delenv("FLOWCTL_HOME")
        here.delenv("FLOWCTL_IVY_SETTINGS")
        files = jars.ensure(sets)
    Path("home/jars").mkdir(parents=True)
    for file in files:
        shutil.copy(file, "home/jars")


@pytest.mark.server
def test_only_what_the_flow_needs_is_looked_for(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(monkeypatch, "postgresql", "delta")
    told, said = setup(capsys, spec(to="out"))
    assert (told["sets"], told["jars"], said) == (["postgresql"], 1, "")
    told, _ = setup(capsys, spec())
    assert told["sets"] == ["delta", "postgresql"]
    assert told["jars"] == len(jars.files_of(["delta", "postgresql"]))
    for elsewhere, store in ({"state": "s3://lake/state"}, "s3a"), ({"lake": "gs://lake/shop"}, "gcs"):
        assert main.run(["setup", "--no-archive", spec(**elsewhere)]) == ExitCode.BROKEN
        assert f"Fetching the jars for {store} into" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("url", "reason"),
    [("sail", "runs on Sail, which needs neither Java nor jars"), ("sc://spark:15002/", "its own jars")],
)
def test_an_engine_that_needs_nothing_needs_no_java(
    url: str, reason: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert main.run(["setup", spec(url=url)]) == ExitCode.OK
    printed = capsys.readouterr()
    assert reason in printed.out
    told, _ = setup(capsys, "spec.yaml")
    assert (told["sets"], told["java"]) == ([], None)
    assert not Path("home").exists()


@pytest.mark.server
def test_storage_that_is_a_secret_is_named(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    put(monkeypatch, "postgresql", "delta")
    told, said = setup(capsys, spec(lake="${secret:env:LAKE_OF_SHOP}"))
    assert told["sets"] == ["delta", "postgresql"]
    assert "The location of connection lake is a secret that cannot be read here" in said
    monkeypatch.setenv("LAKE_OF_SHOP", "s3://lake/shop")
    assert main.run(["setup", "--no-archive", "spec.yaml"]) == ExitCode.BROKEN
    assert "Fetching the jars for s3a into" in capsys.readouterr().err


def test_options_of_a_spec_need_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.run(["setup", "--var", "a=b"]) == ExitCode.USAGE
    assert "name the spec that uses them" in capsys.readouterr().err
