"""Whole commands whose connections are secrets in a store: exit codes, places, and nothing of a secret anywhere."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.services import vault
from tests.services.processes import HOST, free_port
from tests.services.vault import VaultServer

FOLDER = "s3cret-folder"
SPEC = """
version: 1
flow: shop
state: state
spark: {url: sail}
connections:
  app:
    type: sqlite
    path: "${secret:vault:secret/shop/app#path}"
  copy: {type: sqlite, path: "${secret:vault:secret/shop/copy#path}"}
tables:
  orders: {from: app:orders, to: copy, mode: truncate}
"""


@pytest.fixture
def server() -> Iterator[VaultServer]:
    with vault.vault() as started:
        started.secrets = {
            "secret/shop/app": [{"path": f"{FOLDER}/app.db"}],
            "secret/shop/copy": [{"path": f"{FOLDER}/copy.db"}],
        }
        yield started


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / FOLDER).mkdir()
    database = sqlite3.connect(tmp_path / FOLDER / "app.db")
    database.executescript("CREATE TABLE orders (id INTEGER PRIMARY KEY); INSERT INTO orders VALUES (1), (2);")
    database.close()
    (tmp_path / "flow.yaml").write_text(SPEC, encoding="utf-8")
    return tmp_path


def flowctl(folder: Path, server: VaultServer, *arguments: str, **variables: str) -> tuple[int, str]:
    """The exit code, and all output. Neither the secrets nor what Vault sent are in it, nor in state."""
    done = subprocess.run(
        [sys.executable, "-m", "flowctl", *arguments],
        cwd=folder, env={**os.environ, **server.environment(), **variables},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    shown = done.stdout + done.stderr
    stored = "".join(path.read_text(errors="replace") for path in folder.glob("state/**/*") if path.is_file())
    for hidden in (FOLDER, vault.TOKEN, vault.PLANTED):
        assert hidden not in shown and hidden not in stored
    return done.returncode, shown


def test_validate_does_not_ask_the_store(folder: Path, server: VaultServer) -> None:
    code, _ = flowctl(folder, server, "validate", "flow.yaml")
    assert code == 0 and server.requests == []


def test_plan_reads_each_secret_once(folder: Path, server: VaultServer) -> None:
    code, shown = flowctl(folder, server, "plan", "flow.yaml", "--verbose")
    assert code == 0, shown
    assert sorted(path for path in server.requests if "/data/" in path) == [
        "secret/data/shop/app",
        "secret/data/shop/copy",
    ]


@pytest.mark.server
def test_apply_writes_no_secret_into_state(folder: Path, server: VaultServer) -> None:
    code, shown = flowctl(folder, server, "apply", "flow.yaml", "--verbose")
    assert code == 0, shown
    copy = sqlite3.connect(folder / FOLDER / "copy.db")
    assert copy.execute("SELECT count(*) FROM orders").fetchone() == (2,)
    copy.close()
    assert server.requests.count("secret/data/shop/copy") == 1


def test_a_secret_that_does_not_exist_fails_its_tables_at_its_line(folder: Path, server: VaultServer) -> None:
    del server.secrets["secret/shop/app"]
    code, shown = flowctl(folder, server, "plan", "flow.yaml", "--verbose")
    assert code == 4
    assert "(flow.yaml:9)" in shown and "has no secret secret/shop/app" in shown


def test_a_token_that_is_not_accepted(folder: Path, server: VaultServer) -> None:
    code, shown = flowctl(folder, server, "plan", "flow.yaml", "--verbose", VAULT_TOKEN="hvs.another-token")
    assert code == 4
    assert "does not accept the token" in shown and "hvs.another-token" not in shown


def test_a_store_that_cannot_be_reached(folder: Path, server: VaultServer) -> None:
    address = f"http://{HOST}:{free_port()}"
    code, shown = flowctl(folder, server, "plan", "flow.yaml", "--verbose", VAULT_ADDR=address)
    assert code == 4
    assert "cannot be reached" in shown and "Check VAULT_ADDR" in shown
