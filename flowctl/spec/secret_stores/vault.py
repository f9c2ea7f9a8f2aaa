"""HashiCorp Vault and OpenBao, through hvac: the variables of Vault's own tools, and three ways to log in."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from flowctl.errors import AccessDenied, FlowctlError, TableError, TransientError
from flowctl.redaction import REDACTOR
from flowctl.spec.secret_stores.store import CONNECT_TIMEOUT, READ_TIMEOUT, SecretStore

#: hvac has no way to log in from the environment alone; these are the names that `vals` uses.
_METHOD, _ROLE, _SECRET, _MOUNT = "VAULT_AUTH_METHOD", "VAULT_ROLE_ID", "VAULT_SECRET_ID", "VAULT_LOGIN_MOUNT_POINT"
_JWT, _JWT_FILE = "VAULT_KUBERNETES_JWT_TOKEN_PATH", "/var/run/secrets/kubernetes.io/serviceaccount/token"


class Vault(SecretStore):
    """A name is the path that ``vault kv get`` and ``vault read`` take. Every engine that answers a read works; fields
    of one secret come from one read, so that a user name fits its password where the engine generates them."""

    title = "HashiCorp Vault"
    clients = ("hvac",)
    name_form = re.compile(r"[^/?#\s][^?#\s]*/[^?#\s]*[^/?#\s]")
    example = "secret/shop/postgres"

    def __init__(self) -> None:
        import hvac

        self._client = hvac.Client(namespace=os.environ.get("VAULT_NAMESPACE"), timeout=(CONNECT_TIMEOUT, READ_TIMEOUT))
        match method := os.environ.get(_METHOD, "token"):
            case "token":
                pass
            case "approle":
                role, secret = _variable(_ROLE), os.environ.get(_SECRET)
                REDACTOR.register(secret or "")
                self._client.auth.approle.login(role, secret, mount_point=os.environ.get(_MOUNT, "approle"))
            case "kubernetes":
                role, jwt = _variable(_ROLE), Path(_service_account()).read_text(encoding="utf-8").strip()
                REDACTOR.register(jwt)
                self._client.auth.kubernetes.login(role, jwt, mount_point=os.environ.get(_MOUNT, "kubernetes"))
            case _:
                what = f"{_METHOD} is {method}, which flowctl does not know"
                raise TableError(what, hint="Set it to token, approle or kubernetes")
        REDACTOR.register(self._client.token or "")

    def read(self, name: str, version: str) -> str:
        mount = self._get(f"sys/internal/ui/mounts/{name}")
        if mount.get("type") == "kv" and (mount.get("options") or {}).get("version") == "2":
            path = str(mount["path"])
            in_mount = f"{name}/".removeprefix(path).rstrip("/")
            data = self._get(f"{path}data/{in_mount}", {"version": version} if version else {}).get("data")
        elif version:
            what = f"{self.title} keeps no versions of {name}: its engine is not KV version 2"
            raise TableError(what, hint="Remove `?version=…`")
        else:
            data = self._get(name)
        return json.dumps(data, ensure_ascii=False)

    def _get(self, path: str, parameters: Mapping[str, str] | None = None) -> dict[str, Any]:
        answer = self._client.adapter.get(f"/v1/{quote(path)}", params=parameters)
        return answer.get("data") or {} if isinstance(answer, dict) else {}

    @classmethod
    def explain(cls, error: Exception, name: str) -> FlowctlError | None:
        import requests
        from hvac import exceptions
        from hvac.utils import get_token_from_env

        where = f"{cls.title} at {_server()}"
        match error:
            case FileNotFoundError() | PermissionError():
                what = f"cannot read the token of the service account in {_service_account()}"
                return TableError(what, hint=f"Check that this runs in a pod, or set {_JWT}")
            case exceptions.VaultDown():
                return TransientError(f"{where} is sealed or in maintenance", hint="Try again later")
            case exceptions.InternalServerError() | exceptions.BadGateway() | exceptions.RateLimitExceeded():
                return TransientError(f"{where} is not available", hint="Try again later")
            case exceptions.VaultError() if "/login" in str(error.url):
                hint = f"Check {_ROLE}, {_SECRET} and {_MOUNT}"
                return AccessDenied(f"{where} refuses the login", hint=hint)
            case exceptions.InvalidPath():
                hint = f"Look for it: vault kv get {name}"
                if "/data/" in name:
                    hint = "Write the path as for `vault kv get`, without `data/`"
                return TableError(f"{where} has no secret {name}, or not in this version", hint=hint)
            case exceptions.Forbidden() | exceptions.Unauthorized():
                if "invalid token" in str(error) or "token expired" in str(error):
                    what = f"{where} does not accept the token: it is wrong, or has expired"
                    return AccessDenied(what, hint="Renew it: vault login")
                if os.environ.get(_METHOD, "token") == "token" and not get_token_from_env():
                    return AccessDenied(f"there is no token for {where}", hint=f"Set VAULT_TOKEN or {_METHOD}")
                hint = "Check the path, and that a policy of the token lets it read there"
                return AccessDenied(f"{where} refuses access to {name}", hint=hint)
            case exceptions.VaultError():
                return TableError(f"{where} does not give {name}", hint=f"Try it: vault read {name}")
            case requests.exceptions.SSLError():
                hint = "Set VAULT_CACERT to the certificate of its authority"
                return TableError(f"the certificate of {where} is not trusted", hint=hint)
            case requests.exceptions.InvalidURL() | requests.exceptions.MissingSchema():
                return TableError("VAULT_ADDR is not a URL", hint="Write https://host:8200")
            case requests.exceptions.RequestException():
                return TransientError(f"{where} cannot be reached", hint="Check VAULT_ADDR and the network")
            case _:
                return None


def _server() -> str:
    """Host and port alone: the address may contain a password."""
    address = os.environ.get("VAULT_ADDR", "localhost:8200")
    return address.rpartition("://")[2].partition("/")[0].rpartition("@")[2]


def _variable(name: str) -> str:
    if value := os.environ.get(name):
        return value
    method = os.environ.get(_METHOD)
    raise TableError(f"{name} is not set, which {_METHOD} {method} needs", hint=f"Set {name}")


def _service_account() -> str:
    return os.environ.get(_JWT, _JWT_FILE)
