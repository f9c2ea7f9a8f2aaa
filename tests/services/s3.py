"""S3: moto (keys are not checked, nothing kept) or VersityGW (the real protocol)."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.services.cache import installed_by_go
from tests.services.processes import HOST, free_port, importing_tests, listens, running

_VERSITYGW = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"


@dataclass(frozen=True)
class S3Server:
    endpoint: str
    access_key: str = "test-access"
    secret_key: str = "test-secret-key"
    region: str = "us-east-1"

    def storage(self) -> dict[str, str]:
        """The options of one entry of a spec's ``storage``."""
        return {
            "endpoint": self.endpoint,
            "region": self.region,
            "access_key": self.access_key,
            "secret_key": self.secret_key,
        }

    def make_bucket(self, name: str) -> str:
        self.client().create_bucket(Bucket=name)
        return f"s3://{name}"

    def contents(self, bucket: str) -> dict[str, bytes]:
        client = self.client()
        names = [entry["Key"] for entry in client.list_objects_v2(Bucket=bucket).get("Contents", [])]
        return {name: client.get_object(Bucket=bucket, Key=name)["Body"].read() for name in names}

    def client(self) -> Any:
        """A boto3 client, for making buckets and looking from outside."""
        import boto3

        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=self.region,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
        )


@contextmanager
def chosen(access_key: str = S3Server.access_key, secret_key: str = S3Server.secret_key) -> Iterator[S3Server]:
    """moto, or VersityGW with ``FLOWCTL_TEST_S3=versitygw`` (``make test-full``)."""
    start = versitygw if os.environ.get("FLOWCTL_TEST_S3") == "versitygw" else moto
    with start(access_key, secret_key) as server:
        yield server


@contextmanager
def moto(access_key: str = S3Server.access_key, secret_key: str = S3Server.secret_key) -> Iterator[S3Server]:
    port = free_port()
    command = [sys.executable, "-m", "tests.services.moto_server", HOST, str(port)]
    with (
        tempfile.TemporaryDirectory(prefix="flowctl-moto-") as folder,
        running(command, log=Path(folder, "moto.log"), answers=lambda: listens(port), env=importing_tests()),
    ):
        yield S3Server(f"http://{HOST}:{port}", access_key, secret_key)


@contextmanager
def versitygw(access_key: str = S3Server.access_key, secret_key: str = S3Server.secret_key) -> Iterator[S3Server]:
    port = free_port()
    server = S3Server(f"http://{HOST}:{port}", access_key, secret_key)
    with tempfile.TemporaryDirectory(prefix="flowctl-s3-", ignore_cleanup_errors=True) as folder:
        objects, sidecar = Path(folder, "objects"), Path(folder, "metadata")
        objects.mkdir()
        sidecar.mkdir()
        command = [str(installed_by_go(_VERSITYGW)), "--port", f"{HOST}:{port}", "--region", server.region, "--quiet"]
        # Metadata beside the objects: not every file system of a test machine has extended attributes.
        command += ["posix", "--sidecar", str(sidecar), str(objects)]
        keys = {"ROOT_ACCESS_KEY": server.access_key, "ROOT_SECRET_KEY": server.secret_key, "GOMAXPROCS": "2"}
        with running(command, log=Path(folder, "versitygw.log"), answers=lambda: listens(port), env=keys):
            yield server
