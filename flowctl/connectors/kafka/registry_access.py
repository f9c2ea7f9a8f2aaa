"""How a registry lets flowctl in: by certificates, a password, or a token of an OAuth server."""

from __future__ import annotations

import base64
import json
import ssl
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flowctl.connectors.kafka.security import is_pem, pem_file
from flowctl.errors import FlowctlError, TableError, TransientError

#: Seconds that one request may take.
SECONDS = 10
#: A token is renewed after this part of its time; after so many seconds if the server does not tell that.
_USED, _UNTOLD_SECONDS = 0.8, 60


@dataclass(frozen=True)
class Access:
    """``settings`` are those of Confluent's client. Every request to the registry has ``headers()``, and every server
    is trusted by ``context``."""

    settings: Mapping[str, Any]
    context: ssl.SSLContext
    tokens: Tokens | None = None
    user: str = ""

    def headers(self) -> dict[str, str]:
        if self.tokens is not None:
            return {"Authorization": f"Bearer {self.tokens.current()}"}
        return {"Authorization": _basic(self.user)} if self.user else {}


@contextmanager
def opened(options: Mapping[str, Any], base_dir: str) -> Iterator[Access]:
    """``options`` are the connection's `registry`, with its secrets resolved. The settings name files that exist until
    the end of the context: the client reads them once, when it is made. Raises ``TableError`` for certificates that
    cannot be used."""
    url, oauth = str(options["url"]), options.get("oauth")
    with _certificates(options.get("tls", {}), base_dir) as files:
        try:
            context = _context(files)
        except (ssl.SSLError, OSError) as error:
            what = f"the certificates for {url} cannot be used: {error}"
            raise TableError(what, hint="Check `registry.tls`: whether they are PEM, and can be read") from error
        if oauth is not None:
            tokens = Tokens(url, oauth, context)
            yield Access({**files, **tokens.settings}, context, tokens)
        elif "username" in options:
            user = f"{options['username']}:{options['password']}"
            yield Access({**files, "basic.auth.user.info": user}, context, user=user)
        else:
            yield Access(files, context)


@dataclass
class Tokens:
    """Of an OAuth server, for client credentials (RFC 6749, 4.4). ``registry`` is the URL that they are for."""

    registry: str
    oauth: Mapping[str, Any]
    context: ssl.SSLContext
    _token: str = field(default="", repr=False)
    _renew_at: float = 0.0

    @property
    def settings(self) -> dict[str, Any]:
        """Of Confluent's client, which asks before each request. Its own way of asking for tokens knows no `tls.ca`."""

        def fields(_: Mapping[str, Any]) -> dict[str, str]:
            # The client insists on the name of a cluster, which only Confluent Cloud has.
            return {"bearer.auth.token": self.current(), "bearer.auth.logical.cluster": ""}

        name = "bearer.auth.custom.provider"
        return {
            "bearer.auth.credentials.source": "CUSTOM",
            f"{name}.function": fields,
            f"{name}.config": {},
        }

    def current(self) -> str:
        """A token that is good for a while. Raises ``TableError`` if the server gives none, ``TransientError`` if it
        does not answer."""
        if time.time() >= self._renew_at:
            found = self._granted()
            self._token = str(found["access_token"])
            self._renew_at = time.time() + _USED * float(found.get("expires_in", _UNTOLD_SECONDS))
        return self._token

    def _granted(self) -> Mapping[str, Any]:
        form = {"grant_type": "client_credentials"}
        if "scope" in self.oauth:
            form["scope"] = str(self.oauth["scope"])
        user = _basic(f"{self.oauth['client_id']}:{self.oauth['client_secret']}")
        url = str(self.oauth["token_url"])
        try:
            status, body = answer(url, self.context, {"Authorization": user, "Accept": "application/json"}, form)
        except OSError as error:
            raise self._unreachable(url, error) from error
        found = _json(body)
        if status == 200 and "access_token" in found:
            return found
        if status >= 500 or status == 429:
            what = f"no token for {self.registry}: {url} cannot answer (HTTP {status})"
            raise TransientError(what, hint="Try again when it has settled")
        if "error" in found:
            why = ": ".join(str(found[name]) for name in ("error", "error_description") if name in found)
            hint = "Check `registry.oauth`: client_id, client_secret and scope"
            raise TableError(f"no token for {self.registry}: {why}", hint=hint)
        what = f"no token for {self.registry}: {url} is no token endpoint (HTTP {status})"
        raise TableError(what, hint="Correct `registry.oauth.token_url`")

    def _unreachable(self, url: str, error: OSError) -> FlowctlError:
        why = str(getattr(error, "reason", "") or error)
        what = f"no token for {self.registry}: {url}"
        if "CERTIFICATE_VERIFY_FAILED" in why:
            hint = "Check `registry.tls.ca`: it must contain the authority that has signed it"
            return TableError(f"{what} has a certificate that is not accepted", hint=hint)
        hint = "Check `registry.oauth.token_url`, and whether this machine reaches it"
        return TransientError(f"{what} does not answer: {why}", hint=hint)


def answer(
    url: str, context: ssl.SSLContext, headers: Mapping[str, str], form: Mapping[str, str] | None = None
) -> tuple[int, bytes]:
    """Status and body; with ``form``, of a POST. Raises ``OSError`` if there is no answer."""
    data = urllib.parse.urlencode(form).encode() if form is not None else None
    request = urllib.request.Request(url, data, dict(headers))
    try:
        with urllib.request.urlopen(request, timeout=SECONDS, context=context) as found:
            return found.status, found.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


def _basic(user: str) -> str:
    return "Basic " + base64.b64encode(user.encode()).decode()


def _json(body: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _context(files: Mapping[str, Any]) -> ssl.SSLContext:
    ca = files["ssl.ca.location"]
    context = ssl.create_default_context(**{"capath" if ca and Path(ca).is_dir() else "cafile": ca})
    if "ssl.certificate.location" in files:
        key, password = files["ssl.key.location"], files.get("ssl.key.password")
        context.load_cert_chain(files["ssl.certificate.location"], key, password)
    return context


@contextmanager
def _certificates(tls: Mapping[str, Any], base_dir: str) -> Iterator[dict[str, Any]]:
    """The client takes only files: texts are files for that long."""
    paths = ssl.get_default_verify_paths()
    settings: dict[str, Any] = {"ssl.ca.location": paths.cafile or paths.capath} if "ca" not in tls else {}
    names = {"ca": "ssl.ca.location", "certificate": "ssl.certificate.location", "key": "ssl.key.location"}
    with ExitStack() as stack:
        for option, setting in names.items():
            if option not in tls:
                continue
            value = str(tls[option])
            if not is_pem(value):
                settings[setting] = str(pem_file(value, f"registry.tls.{option}", base_dir))
                continue
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="flowctl-tls-")))  # only for this user
            file = folder / f"{option}.pem"
            file.write_text(value)
            settings[setting] = str(file)
        if "key_password" in tls:
            settings["ssl.key.password"] = str(tls["key_password"])
        yield settings
