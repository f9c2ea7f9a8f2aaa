"""The edge of two clouds: Google Secret Manager and Azure Key Vault as their client libraries see them.

A proxy that clients reach through ``HTTPS_PROXY``. It ends TLS for the clouds' own host names with certificates of an
authority of the test, and answers as the REST references of both services say: tokens, versions, errors. So the real
clients run whole, with their real URLs and logins; only what answers is not the cloud.
"""

from __future__ import annotations

import base64
import datetime as dt
import json
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import RSAKey

from tests.services.processes import HOST
from tests.services.web import Handler, serving

TENANT, CLIENT, CLIENT_SECRET = "11111111-2222-3333-4444-555555555555", "flowctl", "client-secret-of-azure"
PROJECT, VAULT = "shop-prod", "shop-vault"
_GOOGLE = ("secretmanager.googleapis.com", "secretmanager.europe-west3.rep.googleapis.com")
_AZURE, _LOGIN = f"{VAULT}.vault.azure.net", "login.microsoftonline.com"
#: In the body of each refusal, which nobody may repeat.
PLANTED = "text-of-the-response"
_Answer = tuple[int, dict[str, Any]]


@dataclass
class Clouds:
    """``secrets`` are the versions of each, oldest first, by path. ``failing`` is the status of every answer;
    ``requests`` are the paths of all that were answered about secrets."""

    port: int
    folder: Path
    key: rsa.RSAPrivateKey
    secrets: dict[str, list[bytes]] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    failing: int = 0
    token: str = "azure-access-token"

    def environment(self) -> dict[str, str]:
        """What the clients need: the way here, the authority to trust, and the credentials of both clouds."""
        return {
            "HTTPS_PROXY": f"http://{HOST}:{self.port}",
            "NO_PROXY": "",
            "REQUESTS_CA_BUNDLE": str(self.folder / "ca.pem"),
            "GOOGLE_APPLICATION_CREDENTIALS": str(self.folder / "google.json"),
            "AZURE_TENANT_ID": TENANT,
            "AZURE_CLIENT_ID": CLIENT,
            "AZURE_CLIENT_SECRET": CLIENT_SECRET,
            "AZURE_TOKEN_CREDENTIALS": "EnvironmentCredential",
        }

    def answer(self, host: str, path: str, headers: Any, form: dict[str, list[str]]) -> tuple[int, Any, dict[str, str]]:
        if host == _LOGIN:
            return *self._log_in(path, form), {}
        self.requests.append(path)
        authorization = str(headers.get("Authorization", ""))
        if host in _GOOGLE:
            return *self._google(host, path, authorization), {}
        challenge = f'Bearer authorization="https://{_LOGIN}/{TENANT}", resource="https://vault.azure.net"'
        if authorization != f"Bearer {self.token}":
            return 401, _azure_error("Unauthorized"), {"WWW-Authenticate": challenge}
        return *self._azure(path), {}

    def _google(self, host: str, path: str, authorization: str) -> _Answer:
        """https://cloud.google.com/secret-manager/docs/reference/rest/v1/projects.secrets.versions/access"""
        try:  # the client signs tokens itself, for the service
            public = RSAKey.import_key(self.key.public_key().public_bytes(
                serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
            ))  # fmt: skip
            jwt.decode(authorization.removeprefix("Bearer "), public)
        except (JoseError, ValueError):
            return _google_error(401, "UNAUTHENTICATED")
        if self.failing:
            return _google_error(self.failing, {403: "PERMISSION_DENIED"}.get(self.failing, "UNAVAILABLE"))
        secret, _, version = path.removeprefix("/v1/").removesuffix(":access").rpartition("/versions/")
        found = _version(self.secrets.get(secret, []), "" if version == "latest" else version)
        if found is None:
            return _google_error(404, "NOT_FOUND")
        data = base64.b64encode(found).decode()
        return 200, {"name": f"{secret}/versions/{version}", "payload": {"data": data}}

    def _azure(self, path: str) -> _Answer:
        """https://learn.microsoft.com/rest/api/keyvault/secrets/get-secret/get-secret"""
        if self.failing:
            return self.failing, _azure_error({403: "Forbidden"}.get(self.failing, "ServiceUnavailable"))
        _, _, secret, *version = path.split("/")
        found = _version(self.secrets.get(secret, []), version[0] if version else "")
        if found is None:
            return 404, _azure_error("SecretNotFound")
        return 200, {"value": found.decode(), "id": f"https://{_AZURE}{path}", "attributes": {"enabled": True}}

    def _log_in(self, path: str, form: dict[str, list[str]]) -> _Answer:
        """https://learn.microsoft.com/entra/identity-platform/v2-oauth2-client-creds-grant-flow"""
        at = f"https://{_LOGIN}/{TENANT}"
        if path.endswith("/discovery/instance"):
            return 200, {"tenant_discovery_endpoint": f"{at}/v2.0/.well-known/openid-configuration", "metadata": []}
        if path.endswith("/openid-configuration"):
            endpoints = {"token_endpoint": f"{at}/oauth2/v2.0/token", "issuer": f"{at}/v2.0"}
            return 200, {"authorization_endpoint": f"{at}/oauth2/v2.0/authorize", **endpoints}
        if form.get("client_secret") != [CLIENT_SECRET]:
            return 401, {"error": "invalid_client", "error_description": f"AADSTS7000215: {PLANTED}"}
        return 200, {"token_type": "Bearer", "expires_in": 3599, "access_token": self.token}


def _version(versions: list[bytes], wanted: str) -> bytes | None:
    """The last, or the one with this number, which counts from 1."""
    if not wanted:
        return versions[-1] if versions else None
    return versions[int(wanted) - 1] if wanted.isdigit() and int(wanted) <= len(versions) else None


def _google_error(code: int, status: str) -> _Answer:
    return code, {"error": {"code": code, "message": PLANTED, "status": status}}


def _azure_error(code: str) -> dict[str, Any]:
    return {"error": {"code": code, "message": PLANTED}}


@contextmanager
def clouds(folder: Path) -> Iterator[Clouds]:
    """``folder`` gets the authority's certificate, and the key of Google's service account."""
    _sign(folder, [*_GOOGLE, _AZURE, _LOGIN])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "server.pem")

    class Proxy(Handler, BaseHTTPRequestHandler):  # named once more for ruff: `do_CONNECT` is its name
        protocol_version = "HTTP/1.1"

        def do_CONNECT(self) -> None:
            self.send_response(200)
            self.end_headers()
            try:
                self.connection = context.wrap_socket(self.connection, server_side=True)
            except (ssl.SSLError, OSError):  # the client does not trust it
                self.close_connection = True
                return
            self.rfile, self.wfile = self.connection.makefile("rb"), self.connection.makefile("wb", 0)
            self.close_connection = False

        def finish(self) -> None:
            super().finish()
            self.connection.close()  # the server knows the socket below only

        def respond(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers.get("Content-Length", 0))).decode())
            host = self.headers["Host"].partition(":")[0]
            status, body, headers = served.answer(host, urlsplit(self.path).path, self.headers, form)
            self.answer(status, json.dumps(body).encode(), **headers)

    with serving(Proxy) as port:
        served = Clouds(port, folder, make_service_account(folder))
        yield served


def make_service_account(folder: Path) -> rsa.RSAPrivateKey:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    account = {
        "type": "service_account",
        "project_id": PROJECT,
        "private_key_id": "tests",
        "private_key": _pem(key),
        "client_email": f"flowctl@{PROJECT}.iam.gserviceaccount.com",
        "token_uri": "https://oauth2.googleapis.com/token",
    }
    (folder / "google.json").write_text(json.dumps(account))
    return key


def _sign(folder: Path, hosts: list[str]) -> None:
    """``ca.pem``, and ``server.pem`` for ``hosts`` with its key."""
    names = [x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]) for name in ("ca", "server")]
    keys = [ec.generate_private_key(ec.SECP256R1()) for _ in names]
    now = dt.datetime.now(dt.UTC)
    alternatives = x509.SubjectAlternativeName([x509.DNSName(host) for host in hosts])
    for name, key in zip(names, keys, strict=True):
        is_authority = name is names[0]
        builder = (
            x509.CertificateBuilder()
            .subject_name(name)
            .issuer_name(names[0])
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(hours=1))
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        )
        if not is_authority:
            builder = builder.add_extension(alternatives, critical=False)
        certificate = builder.sign(keys[0], hashes.SHA256()).public_bytes(serialization.Encoding.PEM).decode()
        file = folder / ("ca.pem" if is_authority else "server.pem")
        file.write_text(certificate if is_authority else certificate + _pem(key))


def _pem(key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey) -> str:
    encoding, format = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return key.private_bytes(encoding, format, serialization.NoEncryption()).decode()
