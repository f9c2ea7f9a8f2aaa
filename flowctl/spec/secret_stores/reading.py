"""Reads secrets from stores: each store is opened once per process, each secret read once, also by parallel threads."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from flowctl import extras
from flowctl.errors import FlowctlError, TableError
from flowctl.redaction import REDACTOR
from flowctl.spec.secret_stores import STORES
from flowctl.spec.secret_stores.store import SecretStore

#: Characters. Looking for a longer text in all output would take seconds; it is registered if a connection uses it.
_LONGEST_REGISTERED = 5_000

Result = TypeVar("Result")


class SecretReader:
    """Keeps what it has read. Errors are not kept: the next attempt reads again."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._locks: dict[tuple[str, ...], threading.Lock] = {}
        self._kept: dict[tuple[str, ...], object] = {}

    def read(self, provider: str, name: str, version: str) -> str:
        """The whole text of a secret. Raises :class:`FlowctlError` without a cause: the errors of clients carry
        requests and responses, which contain tokens and secrets."""
        kind, failure = STORES[provider], None
        missing = next((client for client in kind.clients if not extras.is_installed(client)), None)
        if missing:
            raise TableError(f"the client of {kind.title} is not installed", hint=extras.install_hint(missing))
        try:
            store = self._once((provider,), kind)
            return self._once((provider, name, version), lambda: _read(store, name, version))
        except FlowctlError:
            raise
        except Exception as error:  # noqa: BLE001 - explained below, where Python does not add it to the traceback
            failure = _explain(kind, error, name)
        raise failure

    def _once(self, key: tuple[str, ...], make: Callable[[], Result]) -> Result:
        with self._lock:
            lock = self._locks.setdefault(key, threading.Lock())
        with lock:
            if key not in self._kept:
                self._kept[key] = make()
            return self._kept[key]  # type: ignore[return-value]  # of the same key


def _read(store: SecretStore, name: str, version: str) -> str:
    text = store.read(name, version)
    if len(text) <= _LONGEST_REGISTERED:
        REDACTOR.register(text)
    return text


def _explain(kind: type[SecretStore], error: Exception, name: str) -> FlowctlError:
    explained = None
    with suppress(ImportError):  # a client that is installed in part
        explained = kind.explain(error, name)
    if explained:
        return explained
    if isinstance(error, UnicodeDecodeError):
        return TableError(f"the secret {name} is not UTF-8 text", hint="Write text into it, for example base64")
    what = f"{kind.title} does not give the secret {name} ({type(error).__name__})"
    return TableError(what, hint="Check the settings of its client, and the versions of the packages")


#: The process's reader.
READER = SecretReader()
