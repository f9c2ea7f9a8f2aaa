"""Where secrets are in tests: AWS is moto; the others are the edges in ``tests/services``. The clients are real."""

from __future__ import annotations

import json
import traceback
import urllib.request
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from flowctl.diagnostics import Mark
from flowctl.errors import FlowctlError
from flowctl.redaction import REDACTOR, Redactor
from flowctl.spec import secrets
from flowctl.spec.secret_stores.reading import SecretReader
from flowctl.spec.secrets import parse_secrets, reveal
from tests.services import clouds, s3, vault
from tests.services.processes import HOST, free_port

MARK = Mark("flow.yaml", 7, 3)
#: What no message and no traceback may contain: texts of responses, and the credentials of the edges.
HIDDEN = [clouds.PLANTED, clouds.CLIENT_SECRET, vault.PLANTED, vault.TOKEN, vault.SECRET_ID, vault.JWT]


class Place(ABC):
    provider: str

    @abstractmethod
    def environment(self) -> dict[str, str]:
        """What the client needs."""

    @abstractmethod
    def put(self, name: str, *versions: str) -> list[str]:
        """Stores ``versions``, oldest first; returns what references call them."""

    @abstractmethod
    def refusing(self) -> Any:
        """A context in which every read is refused, with additional variables."""

    @abstractmethod
    def nowhere(self) -> dict[str, str]:
        """Variables that send the client where nothing listens."""

    def written(self, name: str) -> str:
        """The name in a reference."""
        return name

    def refer(self, name: str, suffix: str = "") -> str:
        return f"{self.provider}:{self.written(name)}{suffix}"


class Aws(Place):
    provider = "aws"

    def __init__(self, server: s3.S3Server) -> None:
        self._server = server

    def environment(self) -> dict[str, str]:
        return {
            "AWS_ENDPOINT_URL": self._server.endpoint,
            "AWS_DEFAULT_REGION": "eu-west-1",
            "AWS_ACCESS_KEY_ID": self._server.access_key,
            "AWS_SECRET_ACCESS_KEY": self._server.secret_key,
            "AWS_EC2_METADATA_DISABLED": "true",
            "AWS_CONFIG_FILE": "/not/there",
            "AWS_SHARED_CREDENTIALS_FILE": "/not/there",
        }

    def client(self, service: str) -> Any:
        import boto3

        keys = {"aws_access_key_id": self._server.access_key, "aws_secret_access_key": self._server.secret_key}
        return boto3.client(service, endpoint_url=self._server.endpoint, region_name="eu-west-1", **keys)

    def put(self, name: str, *versions: str) -> list[str]:
        client = self.client("secretsmanager")
        made = [client.create_secret(Name=name, SecretString=versions[0])]
        made += [client.put_secret_value(SecretId=name, SecretString=text) for text in versions[1:]]
        return [answer["VersionId"] for answer in made]

    @contextmanager
    def refusing(self) -> Iterator[dict[str, str]]:
        """moto checks signatures and policies from now on; the user has no policy."""
        iam = self.client("iam")
        iam.create_user(UserName="nobody")
        key = iam.create_access_key(UserName="nobody")["AccessKey"]
        self._check_access("0")
        try:
            yield {"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}
        finally:
            self._check_access("1000000")
            iam.delete_access_key(UserName="nobody", AccessKeyId=key["AccessKeyId"])
            iam.delete_user(UserName="nobody")

    def _check_access(self, after: str) -> None:
        url = f"{self._server.endpoint}/moto-api/reset-auth"
        request = urllib.request.Request(url, after.encode(), {"Content-Type": "text/plain"}, method="POST")
        urllib.request.urlopen(request).close()

    def nowhere(self) -> dict[str, str]:
        return {"AWS_ENDPOINT_URL": f"http://{HOST}:{free_port()}"}


class _Edge(Place):
    """A place that refuses everything while its server's ``failing`` is set."""

    server: Any

    def environment(self) -> dict[str, str]:
        made: dict[str, str] = self.server.environment()
        return made

    @contextmanager
    def refusing(self) -> Iterator[dict[str, str]]:
        self.server.failing = 403
        try:
            yield {}
        finally:
            self.server.failing = 0


class Cloud(_Edge):
    path = ""

    def __init__(self, server: clouds.Clouds) -> None:
        self.server = server

    def put(self, name: str, *versions: str) -> list[str]:
        self.server.secrets[self.path + name] = [text.encode() for text in versions]
        return [str(number) for number, _ in enumerate(versions, 1)]

    def nowhere(self) -> dict[str, str]:
        return {"HTTPS_PROXY": f"http://{HOST}:{free_port()}"}


class Gcp(Cloud):
    provider, path = "gcp", f"projects/{clouds.PROJECT}/secrets/"


class Azure(Cloud):
    provider = "azure"

    def written(self, name: str) -> str:
        return f"{clouds.VAULT}/{name}"


class Vault(_Edge):
    provider = "vault"

    def __init__(self, server: vault.VaultServer) -> None:
        self.server = server

    def put(self, name: str, *versions: str) -> list[str]:
        self.server.secrets[self.written(name)] = [json.loads(text) for text in versions]
        return [str(number) for number, _ in enumerate(versions, 1)]

    def nowhere(self) -> dict[str, str]:
        return {"VAULT_ADDR": f"http://{HOST}:{free_port()}"}

    def written(self, name: str) -> str:
        return f"secret/shop/{name}"

    def put_unversioned(self, name: str, secret: dict[str, str]) -> None:
        """Into KV 1, at ``old/``."""
        self.server.secrets[f"old/{name}"] = [secret]

    def role(self) -> tuple[str, str]:
        """Role and secret of a login that may read below ``secret/``."""
        return vault.ROLE, vault.SECRET_ID


class RealVault(Vault):
    def __init__(self, started: vault.RealVault) -> None:
        self._started = started
        started.send("sys/policies/acl/etl", {"policy": 'path "secret/*" { capabilities = ["read"] }'})

    def environment(self) -> dict[str, str]:
        return {"VAULT_ADDR": self._started.url, "VAULT_TOKEN": self._started.token}

    def put(self, name: str, *versions: str) -> list[str]:
        path = self.written(name).replace("secret/", "secret/data/", 1)
        made = [self._started.send(path, {"data": json.loads(text)}) for text in versions]
        return [str(answer["data"]["version"]) for answer in made]

    def put_unversioned(self, name: str, secret: dict[str, str]) -> None:
        self._started.send(f"old/{name}", secret)

    @contextmanager
    def refusing(self) -> Iterator[dict[str, str]]:
        """A token without a policy for it."""
        made = self._started.send("auth/token/create", {"policies": ["default"]})
        yield {"VAULT_TOKEN": made["auth"]["client_token"]}

    def role(self) -> tuple[str, str]:
        self._started.send("auth/approle/role/etl", {"token_policies": "etl"})
        request = urllib.request.Request(f"{self._started.url}/v1/auth/approle/role/etl/role-id")
        request.add_header("X-Vault-Token", self._started.token)
        with urllib.request.urlopen(request) as answer:
            role = json.loads(answer.read())["data"]["role_id"]
        return role, self._started.send("auth/approle/role/etl/secret-id", {})["data"]["secret_id"]


def start_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a new process: nothing is read, nothing is registered."""
    monkeypatch.setattr(secrets, "READER", SecretReader())
    for name, value in vars(Redactor()).items():
        monkeypatch.setattr(REDACTOR, name, value)


def read(reference: str) -> str:
    return str(reveal(parse_secrets(f"${{secret:{reference}}}", MARK)))


def fail_to_read(reference: str, *hidden: str) -> FlowctlError:
    """The error, which has the reference's place, and shows neither ``hidden`` nor anything that a client sent or
    received."""
    with pytest.raises(FlowctlError) as raised:
        read(reference)
    error = raised.value
    assert error.mark == MARK and error.hint
    assert error.__cause__ is None and error.__context__ is None  # clients' errors carry requests and responses
    shown = "".join(traceback.format_exception(error))
    assert not [text for text in (*HIDDEN, *hidden) if text in shown]
    return error


@contextmanager
def open_place(kind: str, folder: Path) -> Iterator[Place]:
    match kind:
        case "aws":
            with s3.moto() as server:
                yield Aws(server)
        case "vault":
            with vault.vault() as edge:
                yield Vault(edge)
        case "vault-real":
            with vault.real_vault() as started:
                yield RealVault(started)
        case _:
            with clouds.clouds(folder) as both:
                yield Gcp(both) if kind == "gcp" else Azure(both)
