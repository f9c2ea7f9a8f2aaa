"""Connections that stay open during planning, and batched queries with one result per key."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TypeVar

from flowctl import extras
from flowctl.connectors import registry
from flowctl.connectors.base import Connector, OpenContext
from flowctl.connectors.target import Target
from flowctl.diagnostics import Mark
from flowctl.errors import AccessDenied, FlowctlError, TableError, TransientError
from flowctl.spec.spec import Spec

#: Connections observed at the same time: the work is bound by network latency, not by CPU.
_MOST_AT_ONCE = 16

Key = TypeVar("Key")
Answer = TypeVar("Answer")


class Connections:
    """The flow's connections, each opened on first use and closed with the context. Threads must not share a name."""

    def __init__(self, spec: Spec) -> None:
        self._spec = spec
        self._context = OpenContext(spec.storage, spec.base_dir)
        self._stack = ExitStack()
        self._opened: dict[str, Connector | FlowctlError] = {}

    def __enter__(self) -> Connections:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def get(self, name: str) -> Connector:
        """Returns the open connection; raises the same error again if it could not be opened."""
        if name not in self._opened:
            try:
                opening = registry.open(self._spec.connections[name], self._context)
                self._opened[name] = self._stack.enter_context(opening)
            except FlowctlError as error:
                self._opened[name] = _at(self.mark(name), error)
            except ImportError as error:
                self._opened[name] = _at(self.mark(name), _not_installed(error))
        opened = self._opened[name]
        if isinstance(opened, FlowctlError):
            raise opened
        return opened

    def target(self, name: str) -> Target:
        """Of a connection that can be written to. Raises as :meth:`get`."""
        target = self.get(name).target
        assert target is not None, "resolve has refused connections that are no targets"
        return target

    def mark(self, name: str) -> Mark:
        return self._spec.connections[name].mark


def in_parallel(work: Callable[[Key], Answer], keys: Iterable[Key]) -> dict[Key, Answer]:
    """Runs ``work`` for each key, in threads; results are in the order of the keys."""
    listed = list(keys)
    if len(listed) < 2:
        return {key: work(key) for key in listed}
    with ThreadPoolExecutor(min(len(listed), _MOST_AT_ONCE), thread_name_prefix="observe") as pool:
        return dict(zip(listed, pool.map(work, listed), strict=True))


def ask_for_each(
    ask: Callable[[Sequence[Key]], Mapping[Key, Answer]], keys: Sequence[Key], connection: Mark
) -> dict[Key, Answer | FlowctlError]:
    """Queries all ``keys`` together. If that fails, queries each key separately, so that an error of one does not stop
    the others. A lost ``connection`` or denied access is not retried per key; ``connection`` is then the mark of the
    error, unless it has one."""
    if not keys:
        return {}
    try:
        return dict(ask(keys))
    except (AccessDenied, TransientError) as error:
        return dict.fromkeys(keys, _at(connection, error))
    except FlowctlError as error:
        if len(keys) == 1:
            return {keys[0]: error}
    return {key: answer for key in keys for answer in ask_for_each(ask, [key], connection).values()}


def _not_installed(error: ImportError) -> FlowctlError:
    """The error for a driver that is missing, or installed but cannot be loaded (e.g. psycopg without libpq)."""
    if missing := extras.missing_package(str(error)):
        return TableError(f"{missing} is not installed", hint=extras.install_hint(missing))
    return TableError(f"a driver cannot be loaded: {error}", hint="Reinstall it, or report the output of --verbose")


def _at(connection: Mark, error: FlowctlError) -> FlowctlError:
    error.mark = error.mark or connection
    return error
