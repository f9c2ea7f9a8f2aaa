"""Spark Connect (``sc://``): a client, which never ends the server's application."""

from __future__ import annotations

import atexit
import re
import socket
import subprocess
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from flowctl.engine import timeouts
from flowctl.engine.base import Engine, seems_gone
from flowctl.engine.conf import INVARIANTS, Extension, session_conf
from flowctl.engine.cost import Size
from flowctl.engine.environment import change_environment
from flowctl.engine.processes import resident_bytes
from flowctl.errors import EngineFailed
from flowctl.spec.spec import SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CONNECT_SECONDS = 10.0
_CONNECT_PORT = 15002
#: Retries of one request to a Connect server that does not respond: about four seconds.
_CLIENT_RETRIES = 4
#: Uses of sessions before a server of this process may be replaced, and the memory from which on it is. It takes 1 s.
_SWOLLEN_USES, _SWOLLEN_BYTES = 2_000, 1 << 30
#: A restarted server no longer has the sessions.
_NO_SESSION = re.compile(r"INVALID_HANDLE\.SESSION_(?:NOT_FOUND|CLOSED|CHANGED)")


class ConnectEngine(Engine):
    """Sessions of the server at ``url``, created by ``create``; ``process`` and ``log`` if flowctl has started it."""

    def __init__(
        self,
        url: str,
        create: Callable[[], SparkSession],
        process: subprocess.Popen[bytes] | None = None,
        log: Path | None = None,
    ) -> None:
        super().__init__(create(), process, log)
        self._url = url
        self._create = create
        self._is_abandoned = False

    def new_session(self, *, interpreted: bool) -> SparkSession:
        return self._create()

    def end_session(self, session: SparkSession) -> None:
        stop_client(session)

    def is_swollen(self) -> bool:
        """Sail never frees a part of what it was sent: 0.2 MB for each use of a session (0.7.2, measured)."""
        if self.process is None or self._all_uses < _SWOLLEN_USES:
            return False
        return resident_bytes(self.process.pid) > _SWOLLEN_BYTES

    def lost(self, text: str) -> EngineFailed | None:
        if self.process is not None:
            return super().lost(text)
        if _NO_SESSION.search(text) or (seems_gone(text) and _refusal_of(self._url)):
            return EngineFailed(
                f"The Spark Connect server at {self._url} has ended or was restarted",
                hint="Check its output, and run again once it responds",
            )
        return None

    def abandon(self) -> None:
        self._is_abandoned = True
        for session in (*self._sessions.values(), self.spark):
            with suppress(Exception):
                session.client._channel.close()

    def close(self) -> None:
        """Ends all sessions and cancels their work."""
        if not self._is_abandoned:
            with suppress(Exception):
                self.interrupt_all()
        for session in self.sessions():
            stop_client(session, is_reachable=not self._is_abandoned)


@contextmanager
def open_connect(
    settings: SparkSettings, extensions: Collection[Extension], storage_conf: Mapping[str, str], size: Size
) -> Iterator[ConnectEngine]:
    """As :func:`flowctl.engine.start.open_engine`."""
    if refusal := _refusal_of(settings.url):  # pyspark itself would retry for minutes
        raise refusal
    conf = session_conf(settings, size, extensions)
    # Unlike in an application, Hadoop settings have no prefix in a session.
    conf |= {name.removeprefix("spark.hadoop."): value for name, value in storage_conf.items()}
    with client(settings.url, conf) as engine:
        _require_extensions(engine.spark, extensions)
        yield engine


@contextmanager
def client(
    url: str, conf: Mapping[str, str], process: subprocess.Popen[bytes] | None = None, log: Path | None = None
) -> Iterator[ConnectEngine]:
    """Sessions of the Spark Connect server at ``url``, each with ``conf``."""
    # pyspark's functions read this variable to decide which kind of column to create.
    with change_environment({"SPARK_CONNECT_MODE_ENABLED": "1"}):
        from pyspark.sql.connect.client.retries import DefaultPolicy
        from pyspark.sql.connect.session import SparkSession as ConnectSession

        warnings.filterwarnings("ignore", r"\[RETRIES_EXCEEDED\]")  # the error that follows has more detail

        def new_session() -> SparkSession:
            session = ConnectSession.builder.channelBuilder(_channels(url)).create()
            _disable_finalizer(session)
            # Each session would send a request as the process ends, and wait for a server that has ended before.
            atexit.unregister(session.client._cleanup_ml_cache)
            # pyspark's own policy retries for ten minutes; the run's own retries check the target first.
            session.client.set_retry_policies([DefaultPolicy(max_retries=_CLIENT_RETRIES)])
            _apply(session, conf)
            return session

        engine = ConnectEngine(url, new_session, process, log)
        try:
            yield engine
        finally:
            engine.close()


def _channels(url: str) -> Any:
    """A channel builder with keepalive, because the kernel of a suspended server still accepts connections."""
    from pyspark.sql.connect.client.core import DefaultChannelBuilder

    milliseconds = {
        "grpc.keepalive_time_ms": timeouts.SERVER_SILENCE * 1000,
        "grpc.keepalive_timeout_ms": timeouts.SERVER_ANSWER * 1000,
    }
    return DefaultChannelBuilder(url, channelOptions=list(milliseconds.items()))


def stop_client(session: SparkSession, *, is_reachable: bool = True) -> None:
    """Ends a session of a Spark Connect server."""
    vars(session.client).pop("close", None)
    if is_reachable:
        with suppress(Exception):
            session.stop()
    _disable_finalizer(session)


def _disable_finalizer(session: SparkSession) -> None:
    """On garbage collection, a session closes its client and shuts down a thread pool that all sessions of this process
    share. The collection may happen in any thread, in the middle of a request, whose lock the pool's threads wait for:
    a deadlock, also for a session that nobody has ended."""
    session.client.close = lambda: None


def _apply(session: SparkSession, conf: Mapping[str, str]) -> None:
    """Applies ``conf`` to a session of a Connect server: in one request, or if that fails one by one, to find the
    setting that the server refuses."""
    from pyspark.errors import PySparkException

    with suppress(PySparkException):
        session.conf._set_all(dict(conf), silent=False)  # pyspark's own builder has no other way
        return
    for name, value in conf.items():
        try:
            session.conf.set(name, value)
        except PySparkException as error:
            if "UNAUTHENTICATED" in str(error):
                raise EngineFailed(
                    "The Spark Connect server requires a token",
                    hint="Set SPARK_CONNECT_AUTHENTICATE_TOKEN to the server's; without TLS it is sent to `localhost` "
                    "only, by that name in spark.url",
                ) from error
            if name in INVARIANTS:
                raise EngineFailed(f"The Spark Connect server refuses {name}={value}: {error}") from error
            raise EngineFailed(
                f"spark.conf: {name} cannot be set by a client of Spark Connect",
                hint="Set it where the server is started, and take it out of the spec",
            ) from error


def _refusal_of(url: str) -> EngineFailed | None:
    """Why no server can be reached at a Connect URL; None if one is listening."""
    parts = urlsplit(url)
    host, port = parts.hostname or "localhost", parts.port or _CONNECT_PORT
    try:
        socket.create_connection((host, port), timeout=_CONNECT_SECONDS).close()
    except OSError as error:
        refusal = EngineFailed(
            f"No Spark Connect server answers at {host}:{port}: {error}",
            hint="Start it (`flowctl spark-server`), or change spark.url",
        )
        refusal.__cause__ = error
        return refusal
    return None


def _require_extensions(spark: SparkSession, extensions: Collection[Extension]) -> None:
    there = spark.conf.get("spark.sql.extensions", "") or ""
    for extension in extensions:
        if extension.sign not in there:
            settings = " and ".join(f"{name}={value}" for name, value in extension.application.items())
            raise EngineFailed(
                f"The Spark Connect server has no {extension.name}",
                hint=f"Start one that has: `flowctl spark-server`; another one needs {extension.name}'s jars, "
                f"{settings}",
            )
