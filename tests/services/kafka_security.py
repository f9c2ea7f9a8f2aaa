"""Listeners with TLS and authentication, their certificates, and a token endpoint that signs for one of them."""

from __future__ import annotations

import base64
import datetime as dt
import ipaddress
import json
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import parse_qs

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import RSAKey

from tests.services.kafka import Secured
from tests.services.processes import HOST, free_port
from tests.services.web import Handler, serving

USER, PASSWORD = "etl", "kafka-secret"
KEY_PASSWORD = "key-secret"
_MODULES = "org.apache.kafka.common.security"
_NAMES = {
    "TLS": "SSL",
    "MUTUAL": "SSL",
    "EXPIRED": "SSL",
    "SASL": "SASL_SSL",
    "OAUTH": "SASL_SSL",
    "OPEN": "SASL_PLAINTEXT",
}


@dataclass(frozen=True)
class Authority:
    """Signs certificates. Its own is ``<name>.pem`` in the folder."""

    folder: Path
    name: str
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    def sign(self, name: str, *, days: int = 30, password: str = "") -> None:
        """Writes ``<name>.pem`` and ``<name>.key``, and both as ``<name>.store``. Below 0 days it has expired."""
        key = ec.generate_private_key(ec.SECP256R1())
        made = _certificate(name, self.certificate.subject, key, days, is_authority=False).sign(
            self.key, hashes.SHA256()
        )
        written = _pem(made)
        (self.folder / f"{name}.pem").write_bytes(written)
        (self.folder / f"{name}.key").write_bytes(_key_pem(key, password))
        (self.folder / f"{name}.store").write_bytes(_key_pem(key, "") + written)


def make_authority(folder: Path, name: str) -> Authority:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = _certificate(name, subject, key, 30, is_authority=True).sign(key, hashes.SHA256())
    (folder / f"{name}.pem").write_bytes(_pem(certificate))
    return Authority(folder, name, key, certificate)


def make_secured(folder: Path, tokens: TokenServer) -> Secured:
    """``folder`` gets ``ca.pem``, ``other.pem`` (an authority that nobody trusts), and the client's ``client``,
    ``locked`` (whose key has a password), ``expired`` and ``stranger``."""
    authority = make_authority(folder, "ca")
    for name in ("server", "client"):
        authority.sign(name)
    for name in ("expired_server", "expired"):
        authority.sign(name, days=-1)
    authority.sign("locked", password=KEY_PASSWORD)
    make_authority(folder, "other").sign("stranger")
    (folder / "keys.json").write_text(json.dumps({"keys": [tokens.key.as_dict(private=False)]}))
    return Secured(
        ports={name: free_port() for name in _NAMES},
        protocols=_NAMES,
        settings={
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(folder / "server.store"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(folder / "ca.pem"),
            "listener.name.mutual.ssl.client.auth": "required",
            "listener.name.expired.ssl.keystore.type": "PEM",
            "listener.name.expired.ssl.keystore.location": str(folder / "expired_server.store"),
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.oauth.sasl.enabled.mechanisms": "OAUTHBEARER",
            **_passwords("sasl"),
            **_passwords("open"),
            **_tokens(folder),
        },
        users=[
            word
            for kind in ("256", "512")
            for word in ("--add-scram", f"SCRAM-SHA-{kind}=[name={USER},password={PASSWORD}]")
        ],
        options=[f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={(folder / 'keys.json').as_uri()}"],
    )


def restricted() -> Secured:
    """A listener ``OPEN`` whose user may do only what :func:`tests.services.kafka.allow` allows."""
    authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    return Secured(
        ports={"OPEN": free_port()},
        protocols={"OPEN": "SASL_PLAINTEXT"},
        settings={
            "authorizer.class.name": authorizer,
            "super.users": "User:ANONYMOUS",
            "sasl.enabled.mechanisms": "PLAIN",
            **_passwords("open"),
        },
    )


def _passwords(listener: str) -> Mapping[str, str]:
    name = f"listener.name.{listener}"
    plain = f'{_MODULES}.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
    scram = f"{_MODULES}.scram.ScramLoginModule required;"
    return {
        f"{name}.plain.sasl.jaas.config": plain,
        f"{name}.scram-sha-256.sasl.jaas.config": scram,
        f"{name}.scram-sha-512.sasl.jaas.config": scram,
    }


def _tokens(folder: Path) -> Mapping[str, str]:
    name = "listener.name.oauth.oauthbearer"
    module = f"{_MODULES}.oauthbearer"
    return {
        f"{name}.sasl.jaas.config": f"{module}.OAuthBearerLoginModule required;",
        f"{name}.sasl.server.callback.handler.class": f"{module}.OAuthBearerValidatorCallbackHandler",
        "listener.name.oauth.sasl.oauthbearer.jwks.endpoint.url": (folder / "keys.json").as_uri(),
        "listener.name.oauth.sasl.oauthbearer.expected.audience": "kafka",
    }


@dataclass(frozen=True)
class TokenServer:
    """An OAuth server for client credentials: one client, with the user's name and password. ``issued`` are the tokens
    that it has given, ``scopes`` the ones that it was asked for."""

    url: str
    key: RSAKey
    issued: list[str] = field(default_factory=list)
    scopes: list[str] = field(default_factory=list)

    def accepts(self, authorization: str | None) -> bool:
        """Whether it has signed the token of a request, and that is not over."""
        kind, _, token = (authorization or "").partition(" ")
        try:
            claims = jwt.decode(token, self.key).claims
        except (JoseError, ValueError):
            return False
        return kind == "Bearer" and claims["exp"] > time.time()


@contextmanager
def token_server(seconds: int = 300) -> Iterator[TokenServer]:
    """``seconds`` is how long it says that a token lasts."""
    key = RSAKey.generate_key(2048, parameters={"kid": "tests", "alg": "RS256", "use": "sig"})
    wanted = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()

    class Tokens(Handler):
        def respond(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers.get("Content-Length", 0))).decode())
            if self.headers.get("Authorization") != wanted:
                self.answer(401, b'{"error": "invalid_client"}')
                return
            now = int(time.time())
            claims = {"sub": USER, "aud": "kafka", "iat": now, "exp": now + 300, "scope": "kafka"}
            claims["jti"] = str(len(made.issued))
            token = jwt.encode({"alg": "RS256", "kid": "tests"}, claims, key)
            made.issued.append(token)
            made.scopes.extend(form.get("scope", []))
            answer = {"access_token": token, "token_type": "Bearer", "expires_in": seconds, "scope": "kafka"}
            self.answer(200, json.dumps(answer).encode())

    with serving(Tokens) as port:
        made = TokenServer(f"http://{HOST}:{port}/token", key)
        yield made


def _certificate(
    name: str, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: int, *, is_authority: bool
) -> x509.CertificateBuilder:
    end = dt.datetime.now(dt.UTC) + dt.timedelta(days=days)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(HOST)), x509.DNSName("localhost")])
    return (
        x509.CertificateBuilder()
        .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(end - dt.timedelta(days=60))
        .not_valid_after(end)
        .add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    )


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey, password: str) -> bytes:
    locked = serialization.BestAvailableEncryption(password.encode()) if password else serialization.NoEncryption()
    return key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, locked)
