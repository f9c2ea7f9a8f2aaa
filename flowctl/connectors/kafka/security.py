"""Encryption and authentication: from a connection's options to the settings of every client of the cluster."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from flowctl.errors import TableError

#: What PEM text has in it.
_PEM = "-----BEGIN"
#: Options of `tls` and the client's settings for a file and for a text.
_FILES = {
    "ca": ("ssl.ca.location", "ssl.ca.pem"),
    "certificate": ("ssl.certificate.location", "ssl.certificate.pem"),
    "key": ("ssl.key.location", "ssl.key.pem"),
}
#: A broker of Amazon MSK; its region is part of the name.
_MSK = re.compile(r"\.kafka(?:-serverless)?\.([a-z0-9-]+)\.amazonaws\.com")


def security_settings(options: Mapping[str, Any], base_dir: str) -> dict[str, Any]:
    """Settings of librdkafka. ``options`` have their secrets resolved; files are relative to ``base_dir``. Raises
    ``TableError`` for a file that does not exist, and for a region that is not known."""
    tls, sasl = options.get("tls"), options.get("sasl")
    is_encrypted = tls is True or isinstance(tls, Mapping)  # an empty map, too: nothing is sent in clear by mistake
    protocol = ("SASL_" if sasl else "") + ("SSL" if is_encrypted else "PLAINTEXT")
    settings: dict[str, Any] = {"security.protocol": protocol}
    if isinstance(tls, Mapping):
        settings |= _certificates(tls, base_dir)
    if sasl:
        settings |= _authentication(sasl, str(options["brokers"]))
        if sasl["mechanism"] == "OAUTHBEARER":
            settings |= {f"https.{name[4:]}": value for name, value in settings.items() if name.startswith("ssl.ca.")}
    return settings


def _certificates(tls: Mapping[str, Any], base_dir: str) -> dict[str, Any]:
    settings: dict[str, Any] = {}
    for option, (as_file, as_text) in _FILES.items():
        if option not in tls:
            continue
        value = str(tls[option])
        if is_pem(value):
            settings[as_text] = value
        else:
            settings[as_file] = str(pem_file(value, f"tls.{option}", base_dir))
    if "key_password" in tls:
        settings["ssl.key.password"] = str(tls["key_password"])
    if not tls.get("check_host", True):
        settings["ssl.endpoint.identification.algorithm"] = "none"
    return settings


def is_pem(value: str) -> bool:
    """Whether it is the text of certificates or a key; else it is a path."""
    return _PEM in value


def pem_file(value: str, option: str, base_dir: str) -> Path:
    """Raises ``TableError`` if it is not a file."""
    if "\n" in value.strip():
        raise TableError(f"{option} is neither the path of a file nor PEM text", hint="Correct the secret")
    path = Path(base_dir, value)
    if not path.is_file():
        raise TableError(f"{option}: there is no file {path}", hint="Correct the path")
    return path


def _authentication(sasl: Mapping[str, Any], brokers: str) -> dict[str, Any]:
    match sasl["mechanism"]:
        case "OAUTHBEARER":
            names = {"client_id": "client.id", "client_secret": "client.secret", "token_url": "token.endpoint.url"}
            given = {names.get(key, key): str(value) for key, value in sasl.items() if key != "mechanism"}
            own = {f"sasl.oauthbearer.{name}": value for name, value in given.items()}
            return {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.method": "oidc", **own}
        case "AWS_MSK_IAM":
            return {"sasl.mechanism": "OAUTHBEARER", "oauth_cb": _signer(sasl.get("region") or _region(brokers))}
        case mechanism:
            user, password = str(sasl["username"]), str(sasl["password"])
            return {"sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password}


def with_contents(settings: Mapping[str, Any]) -> dict[str, Any]:
    """The same settings, with the texts of files in place of their paths: other machines do not have them."""
    made = dict(settings)
    for name in [one for one in made if one.endswith(".location")]:
        made[name.removesuffix("location") + "pem"] = Path(made.pop(name)).read_text()
    return made


def _region(brokers: str) -> str:
    if found := _MSK.search(brokers):
        return found[1]
    raise TableError("the names of the brokers do not tell the region of AWS", hint="Set sasl.region")


def _signer(region: str) -> Callable[[str], tuple[str, float]]:
    """What the client calls whenever it needs a token; with the credentials that the SDK of AWS finds."""
    from aws_msk_iam_sasl_signer import MSKAuthTokenProvider

    def token(_: str) -> tuple[str, float]:
        signed, expires = MSKAuthTokenProvider.generate_auth_token(region)
        return signed, expires / 1000

    return token
