"""HashiCorp Vault: its own core (``make test-full``), or what its API answers to hvac, without a build of minutes.

https://developer.hashicorp.com/vault/api-docs describes each path. The contract suite runs on both.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.services.cache import cached, run_go
from tests.services.processes import HOST, free_port, listens, running
from tests.services.web import Handler, serving

TOKEN, ROLE, SECRET_ID, JWT = "hvs.root-token", "role-of-etl", "secret-id-of-etl", "jwt-of-the-pod"
NAMESPACE = "team-a"
#: In the body of each refusal, which nobody may repeat.
PLANTED = "text-of-the-response"
_SOURCE = Path(__file__).parent / "vault_server"
_ENGINES = {"secret/": ("kv", "2"), "old/": ("kv", "1"), "database/": ("database", "")}
_Answer = tuple[int, dict[str, Any]]


@dataclass
class VaultServer:
    """``secrets`` are the versions of each, oldest first, by path; below ``secret/`` is KV 2, below ``old/`` KV 1. Each
    read below ``database/`` makes another password. ``failing`` is the status of every answer; ``requests`` are the
    paths that were asked for."""

    url: str
    secrets: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    failing: int = 0
    tokens: set[str] = field(default_factory=lambda: {TOKEN})
    #: Namespaces of the requests.
    namespaces: set[str] = field(default_factory=set)

    def environment(self) -> dict[str, str]:
        return {"VAULT_ADDR": self.url, "VAULT_TOKEN": TOKEN, "VAULT_NAMESPACE": NAMESPACE}

    def answer(self, path: str, query: dict[str, list[str]], headers: Any, body: dict[str, str]) -> _Answer:
        self.requests.append(path)
        self.namespaces.add(str(headers.get("X-Vault-Namespace")))
        if self.failing:
            return self.failing, _errors({503: "Vault is sealed"}.get(self.failing, "permission denied"))
        if path.startswith("auth/"):
            return self._log_in(path, body)
        token = headers.get("X-Vault-Token")
        if token is None:
            return 403, _errors("permission denied")
        if token not in self.tokens:
            return 403, _errors("2 errors occurred:\n\t* permission denied\n\t* invalid token\n\n")
        asked = path.removeprefix("sys/internal/ui/mounts/")
        mount = next((mount for mount in _ENGINES if asked.startswith(mount)), None)
        if mount is None:  # Vault does not say which mounts there are
            return 403, _errors("preflight capability check returned 403")
        engine, version = _ENGINES[mount]
        if asked != path:
            return 200, {"data": {"path": mount, "type": engine, "options": {"version": version} if version else None}}
        return self._read(path, engine, version, query.get("version", [""])[0])

    def _read(self, path: str, engine: str, version: str, wanted: str) -> _Answer:
        if engine == "database":
            credentials = {"username": f"v-{time.monotonic_ns()}", "password": f"pw-{time.monotonic_ns()}"}
            return 200, {"lease_id": f"{path}/x", "lease_duration": 3600, "data": credentials}
        versions = self.secrets.get(path.replace("secret/data/", "secret/", 1), [])
        if version == "1" and versions:
            return 200, {"data": versions[-1]}
        if not versions or not path.startswith("secret/data/") or int(wanted or 1) > len(versions):
            return 404, {"errors": []}
        number = int(wanted or len(versions))
        return 200, {"data": {"data": versions[number - 1], "metadata": {"version": number}}}

    def _log_in(self, path: str, body: dict[str, str]) -> _Answer:
        accepted = {
            "auth/approle/login": {"role_id": ROLE, "secret_id": SECRET_ID},
            "auth/pods/login": {"role": ROLE, "jwt": JWT},
        }
        if body != accepted.get(path):
            return 400, _errors("invalid role or secret ID")
        token = f"hvs.{time.monotonic_ns()}"
        self.tokens.add(token)
        return 200, {"auth": {"client_token": token, "lease_duration": 3600}}


def _errors(text: str) -> dict[str, Any]:
    return {"errors": [f"{text} ({PLANTED})"]}


@contextmanager
def vault() -> Iterator[VaultServer]:
    class Edge(Handler):
        def respond(self) -> None:
            written = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            at = urlsplit(self.path)
            body = json.loads(written or "{}")
            status, answer = served.answer(at.path.removeprefix("/v1/"), parse_qs(at.query), self.headers, body)
            self.answer(status, json.dumps(answer).encode())

    with serving(Edge) as port:
        served = VaultServer(f"http://{HOST}:{port}")
        yield served


@dataclass(frozen=True)
class RealVault:
    url: str
    token: str

    def send(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        request = urllib.request.Request(f"{self.url}/v1/{path}", json.dumps(body).encode())
        request.add_header("X-Vault-Token", self.token)
        with urllib.request.urlopen(request) as answer:
            found: dict[str, Any] = json.loads(answer.read() or b"{}")
        return found


@contextmanager
def real_vault() -> Iterator[RealVault]:
    """With KV 2 at ``secret/``, KV 1 at ``old/`` and AppRole."""
    port = free_port()
    program = cached("vault", _build) / "vault"
    with tempfile.TemporaryDirectory(prefix="flowctl-vault-") as folder:
        token = Path(folder, "token")
        command = [str(program), f"{HOST}:{port}", str(token)]
        with running(command, log=Path(folder, "vault.log"), answers=lambda: listens(port)):
            server = RealVault(f"http://{HOST}:{port}", token.read_text())
            for mount, (engine, version) in _ENGINES.items():
                if engine == "kv":
                    server.send(f"sys/mounts/{mount.rstrip('/')}", {"type": engine, "options": {"version": version}})
            server.send("sys/auth/approle", {"type": "approle"})
            yield server


def _build(folder: Path) -> None:
    """A quarter of an hour on one core."""
    shutil.copytree(_SOURCE, folder / "source")
    run_go(["build", "-mod=mod", "-o", str(folder / "vault"), "."], folder=folder / "source")
