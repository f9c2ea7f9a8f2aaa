"""Azure's blob service: Azurite, from npm. It has no endpoint for file systems (``dfs``)."""

from __future__ import annotations

import base64
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.services.cache import cached
from tests.services.processes import HOST, free_port, listens, running

_PACKAGE = "azurite@3.35.0"
_ROOT = Path(__file__).parents[2]
_PROGRAM = Path("node_modules", "azurite", "dist", "src", "blob", "main.js")


@dataclass(frozen=True)
class AzureServer:
    port: int
    account: str = "shopaccount"
    #: Any key will do: the server gets it as it starts.
    account_key: str = base64.b64encode(b"key-of-the-tests-of-flowctl" * 2).decode()

    @property
    def endpoint(self) -> str:
        return f"http://{HOST}:{self.port}/{self.account}"

    @property
    def connection_string(self) -> str:
        return f"AccountName={self.account};AccountKey={self.account_key};BlobEndpoint={self.endpoint};"

    def storage(self) -> dict[str, str]:
        """The options of one entry of a spec's ``storage``."""
        return {"account": self.account, "account_key": self.account_key, "endpoint": self.endpoint}

    def make_bucket(self, name: str) -> str:
        self.client().create_container(name)
        return f"az://{name}"

    def contents(self, bucket: str) -> dict[str, bytes]:
        container = self.client().get_container_client(bucket)
        return {name: container.download_blob(name).readall() for name in container.list_blob_names()}

    def client(self) -> Any:
        """A client of Azure's own library, for making containers and looking from outside."""
        from azure.storage.blob import BlobServiceClient

        return BlobServiceClient.from_connection_string(self.connection_string)


@contextmanager
def azurite() -> Iterator[AzureServer]:
    server = AzureServer(free_port())
    program = cached(_PACKAGE, _install) / _PROGRAM
    with tempfile.TemporaryDirectory(prefix="flowctl-azurite-", ignore_cleanup_errors=True) as folder:
        command = ["node", str(program), "--blobHost", HOST, "--blobPort", str(server.port)]
        command += ["--location", folder, "--silent", "--skipApiVersionCheck", "--disableTelemetry"]
        keys = {"AZURITE_ACCOUNTS": f"{server.account}:{server.account_key}"}
        log = Path(folder, "azurite.log")
        with running(command, log=log, answers=lambda: listens(server.port), env=keys):
            yield server


def _install(folder: Path) -> None:
    """Half a minute."""
    subprocess.run([_ROOT / "scripts" / "install-system.sh", "node"], check=True)
    folder.mkdir(parents=True)
    install = ["npm", "install", "--no-fund", "--no-audit", "--silent", "--prefix", str(folder), _PACKAGE]
    subprocess.run(install, check=True)
