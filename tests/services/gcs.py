"""Google Cloud Storage: fake-gcs-server. It has the JSON API with generations and conditions, and does not check
credentials; :mod:`tests.services.gcs_xml` before it adds what other clients write through."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.services.cache import installed_by_go
from tests.services.gcs_xml import adapter
from tests.services.processes import HOST, free_port, listens, running
from tests.services.web import serving

_SERVER = "github.com/fsouza/fake-gcs-server@v1.56.1"


@dataclass(frozen=True)
class GoogleServer:
    endpoint: str

    def storage(self) -> dict[str, Any]:
        """The options of one entry of a spec's ``storage``."""
        return {"anonymous": True, "endpoint": self.endpoint}

    def make_bucket(self, name: str) -> str:
        self.client().create_bucket(name)
        return f"gs://{name}"

    def contents(self, bucket: str) -> dict[str, bytes]:
        return {blob.name: blob.download_as_bytes() for blob in self.client().list_blobs(bucket)}

    def client(self) -> Any:
        """A client of Google's own library, for making buckets and looking from outside."""
        from google.auth.credentials import AnonymousCredentials
        from google.cloud import storage

        options = {"api_endpoint": self.endpoint}
        return storage.Client(project="test", credentials=AnonymousCredentials(), client_options=options)


@contextmanager
def fake_gcs() -> Iterator[GoogleServer]:
    port, program = free_port(), installed_by_go(_SERVER)
    with (
        tempfile.TemporaryDirectory(prefix="flowctl-gcs-", ignore_cleanup_errors=True) as folder,
        serving(adapter(port)) as public,
    ):
        server = GoogleServer(f"http://{HOST}:{public}")
        command = [str(program), "-scheme", "http", "-host", HOST, "-port", str(port), "-backend", "memory"]
        command += ["-external-url", server.endpoint, "-public-host", f"{HOST}:{public}", "-log-level", "error"]
        log = Path(folder, "gcs.log")
        with running(command, log=log, answers=lambda: listens(port), env={"GOMAXPROCS": "2"}):
            yield server
