"""The only place where a Spark application is made: one per run, once a table is sure to need it.

Classic (``local[*]``, ``spark://``, YARN, Kubernetes): a JVM of our own whose output goes to a file, whose life hangs
on a pipe to this process (killed Python, ended JVM), and which gets neither Ctrl-C nor the group's SIGTERM, so that
what has begun can be committed. Spark Connect (``sc://``): a client; the server's application is not ours to end.
"""

from __future__ import annotations

import logging
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from flowctl.engine import archive, jars, java, sail
from flowctl.engine.base import ENGINE_KEY, SAIL
from flowctl.engine.conf import (
    INTERPRETED,
    INVARIANTS,
    Size,
    conf_for,
    is_connect,
    is_local,
    is_sail,
    session_conf,
    this_machine,
)
from flowctl.engine.environment import changed_environment
from flowctl.engine.jvm import launched, tail
from flowctl.engine.processes import was_silent
from flowctl.engine.scratch import scratch_folder
from flowctl.errors import EngineFailed
from flowctl.spec import bounds
from flowctl.spec.spec import SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CONNECT_SECONDS = 10.0
_CONNECT_PORT = 15002
_PYSPARK_LOGGERS = ("DataFrameQueryContextLogger", "SQLQueryContextLogger")
#: Of one request to a Connect server that does not answer: some four seconds.
_CLIENT_RETRIES = 4
#: How long a process may take to end whose connections are closed already.
_ENDING_SECONDS = 5.0
_NO_ANSWER = re.compile(
    r"Answer from Java side is empty|Py4JNetworkError|Error while (?:sending|receiving|obtaining)|Code\.UNAVAILABLE"
    r"|Connection refused|Connection reset|Broken pipe|Socket closed|SparkContext was shut ?down|stopped SparkContext"
    r"|An error occurred while calling \S+\w$",  # by Java's own errors more follows: a point, and their trace
    re.MULTILINE,
)
#: A server started anew knows no session of before.
_NO_SESSION = re.compile(r"INVALID_HANDLE\.SESSION_(?:NOT_FOUND|CLOSED|CHANGED)")
#: What in a JVM's log says why it ended.
_DEADLY = re.compile(r"OutOfMemoryError|insufficient memory|fatal error|No space left|There is insufficient")


@dataclass
class Engine:
    """A running Spark. ``session_for`` may be called from any thread; sessions are of no use after the engine ended.
    ``log`` and ``process`` are those of an engine of our own, ``url`` a Connect server's."""

    spark: SparkSession
    is_connect: bool
    log: Path | None
    _new_session: Callable[[], SparkSession]
    own_conf: Mapping[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    url: str = ""
    is_abandoned: bool = False
    _sessions: dict[str, SparkSession] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def session_for(self, table_id: str, *, interpreted: bool = False) -> SparkSession:
        """The table's own session: settings and temporary views of one table never reach another's. ``interpreted``
        when it has too few rows to compile its queries; the spec's own settings and a Connect server's win."""
        with self._lock:
            if self.process is not None and (code := self.process.poll()) is not None:
                raise self._ended(code)
            if table_id not in self._sessions:
                session = self._sessions[table_id] = self._new_session()
                if interpreted and not self.is_connect:
                    for name, value in INTERPRETED.items():
                        if name not in self.own_conf:
                            session.conf.set(name, value)
            return self._sessions[table_id]

    def lost(self, text: str) -> EngineFailed | None:
        """The engine's end, if it has come: asked after an error, whose ``text`` may be of a broken connection."""
        seems_gone = _NO_ANSWER.search(text) is not None
        if self.process is not None:
            with suppress(subprocess.TimeoutExpired):  # the connection breaks a moment before the process has ended
                return self._ended(self.process.wait(_ENDING_SECONDS if seems_gone else 0))
        elif self.is_connect and (_NO_SESSION.search(text) or (seems_gone and _refusal_of(self.url))):
            return EngineFailed(
                f"The Spark Connect server at {self.url} has ended, or was started anew",
                hint="Look at its own output, and run again once it answers",
            )
        return None

    def _ended(self, code: int) -> EngineFailed:
        told = next((line.strip() for line in tail(self.log, 200).splitlines() if _DEADLY.search(line)), "")
        if self.process is not None and was_silent(self.process):
            return EngineFailed(
                f"Spark did not answer for {bounds.ENGINE_SILENCE:.0f} s and was ended",
                hint="Check this machine's load and memory (or what has suspended the process), and run again",
            )
        how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        return EngineFailed(
            f"Spark has ended by itself ({how})" + (f": {told[:300]}" if told else ""),
            hint="Check this machine's memory and spark.driver.memory, then run again; --verbose shows Spark's output",
        )

    def interrupt(self, table_id: str) -> None:
        """Asks Spark to end what this table's session is doing; a commit may still land."""
        with self._lock:
            session = self._sessions.get(table_id)
        if session is not None:
            session.interruptAll()

    def interrupt_all(self) -> None:
        with self._lock:
            ids = list(self._sessions)
        for table_id in ids:
            self.interrupt(table_id)

    def abandon(self) -> None:
        """Ends every call to a server, so that whoever waits for one goes on; takes no lock, which one of them may
        hold. Nothing is asked of it any more."""
        self.is_abandoned = True
        for session in (*self._sessions.values(), self.spark) if self.is_connect else ():
            with suppress(Exception):
                session.client._channel.close()

    def sessions(self) -> list[SparkSession]:
        with self._lock:
            return [*self._sessions.values(), self.spark]

    def log_tail(self, lines: int = 20) -> str:
        """The end of the JVM's own output, for ``--verbose`` and for a JVM that died; empty where it is not ours."""
        return tail(self.log, lines)


@contextmanager
def open_engine(
    settings: SparkSettings,
    jar_sets: Collection[str],
    storage_conf: Mapping[str, str],
    size: Size,
    *,
    storage_environment: Mapping[str, str] | None = None,
    verbose: bool = False,
    say: Callable[[str], None] | None = None,
    stop_seconds: float = 10.0,
) -> Iterator[Engine]:
    """Starts (or reaches) Spark and ends it again, interrupting what still runs. ``jar_sets`` are those of
    ``CAPABILITIES.jars``; ``storage_conf`` are Spark settings with credentials (``spark.hadoop.…``), kept off every
    command line, ``storage_environment`` the same as variables for Sail. ``verbose`` passes the JVM's own output on to
    standard error; ``say`` gets what there is to say about jars; ``stop_seconds`` is what the JVM gets for ending by
    itself. Raises :class:`EngineFailed`, :class:`java.JavaMissing`, :class:`jars.JarsMissing`,
    :class:`sail.SailMissing`."""
    if not verbose:
        silence_pyspark()
    if is_connect(settings.url):
        with _connect(settings, jar_sets, storage_conf, size) as engine:
            yield engine
        return
    if is_sail(settings.url):
        with _sail(settings, storage_environment or {}, size, verbose) as engine:
            yield engine
        return
    found = java.find()
    class_path, class_data = archive.class_path_for(found, jars.ensure(jar_sets, say))
    with scratch_folder() as scratch:
        conf = conf_for(settings, size, this_machine(), class_path, scratch, class_data)
        log = None if verbose else scratch / "spark.log"
        with (
            changed_environment(_driver_environment(found, settings.url)),
            launched(conf, scratch, log, stop_seconds) as gateway,
            _classic(gateway, {**conf, **storage_conf}, log, settings.conf) as engine,
        ):
            yield engine


def silence_pyspark() -> None:
    """Its loggers write each error to standard error as JSON, beside raising it."""
    for name in _PYSPARK_LOGGERS:
        logging.getLogger(name).disabled = True


@contextmanager
def _classic(gateway: Any, conf: Mapping[str, str], log: Path | None, own_conf: Mapping[str, str]) -> Iterator[Engine]:
    spark = _application(gateway, conf)
    engine = Engine(
        spark, is_connect=False, log=log, _new_session=spark.newSession, own_conf=own_conf, process=gateway.proc
    )
    try:
        yield engine
    finally:
        # A JVM that died has nothing left to interrupt or stop, and the error that tells so is on its way.
        with suppress(Exception):
            engine.interrupt_all()
        with suppress(Exception):
            spark.stop()


def _application(gateway: Any, conf: Mapping[str, str]) -> SparkSession:
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    interrupt_handler = signal.getsignal(signal.SIGINT)
    try:
        context = SparkContext(conf=SparkConf(loadDefaults=False).setAll(list(conf.items())), gateway=gateway)
    except (Py4JError, OSError) as error:
        cause = str(getattr(error, "java_exception", error)).splitlines()[0]
        raise EngineFailed(
            f"Spark did not start on {conf['spark.master']}: {cause}",
            hint="Check spark.url and spark.conf; --verbose shows Spark's own log",
        ) from error
    finally:
        # SparkContext takes Ctrl-C over from whoever had it.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, interrupt_handler)
    return SparkSession(context)


def _driver_environment(found: java.Java, url: str) -> dict[str, str | None]:
    """What pyspark and Spark's scripts read from the environment. Variables that would turn this into another kind of
    session than the spec says are taken out; the executors' Python is this one unless the user said otherwise."""
    return {
        "JAVA_HOME": str(found.home),
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
        "SPARK_LOCAL_IP": "127.0.0.1" if is_local(url) else os.environ.get("SPARK_LOCAL_IP"),
        "SPARK_LAUNCHER_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto",
        **dict.fromkeys(("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "SPARK_API_MODE", "PYSPARK_SUBMIT_ARGS")),
    }


@contextmanager
def _connect(
    settings: SparkSettings, jar_sets: Collection[str], storage_conf: Mapping[str, str], size: Size
) -> Iterator[Engine]:
    _require_listener(settings.url)
    conf = session_conf(settings, size, with_delta="delta" in jar_sets)
    # Hadoop's settings have no prefix in a session, unlike in an application.
    conf |= {name.removeprefix("spark.hadoop."): value for name, value in storage_conf.items()}
    with _client(settings.url, conf) as engine:
        _require_extensions(engine.spark, jar_sets)
        yield engine


@contextmanager
def _sail(
    settings: SparkSettings, storage_environment: Mapping[str, str], size: Size, verbose: bool
) -> Iterator[Engine]:
    conf = {**session_conf(settings, size, with_delta=False), ENGINE_KEY: SAIL}
    memory = this_machine().memory // 2
    with scratch_folder() as scratch:
        log = None if verbose else scratch / "sail.log"
        with sail.server(storage_environment, memory, scratch, log) as (url, process), _client(url, conf) as engine:
            yield replace(engine, log=log, process=process)


@contextmanager
def _client(url: str, conf: Mapping[str, str]) -> Iterator[Engine]:
    """Sessions of a Spark Connect server."""
    # pyspark's functions ask this variable which kind of column they shall make.
    with changed_environment({"SPARK_CONNECT_MODE_ENABLED": "1"}):
        from pyspark.sql.connect.client.retries import DefaultPolicy
        from pyspark.sql.connect.session import SparkSession as ConnectSession

        warnings.filterwarnings("ignore", r"\[RETRIES_EXCEEDED\]")  # the error that follows says more

        def new_session() -> SparkSession:
            session = ConnectSession.builder.channelBuilder(_channels(url)).create()
            # pyspark's own policy goes on for ten minutes; the run's own retries ask the target first.
            session.client.set_retry_policies([DefaultPolicy(max_retries=_CLIENT_RETRIES)])
            _apply(session, conf)
            return session

        engine = Engine(new_session(), is_connect=True, log=None, _new_session=new_session, url=url)
        try:
            yield engine
        finally:
            if not engine.is_abandoned:
                with suppress(Exception):
                    engine.interrupt_all()
            for session in engine.sessions():
                stop_client(session, is_reachable=not engine.is_abandoned)


def _channels(url: str) -> Any:
    """To a server whose kernel takes connections while it is suspended itself: it is asked now and then."""
    from pyspark.sql.connect.client.core import DefaultChannelBuilder

    milliseconds = {
        "grpc.keepalive_time_ms": bounds.SERVER_SILENCE * 1000,
        "grpc.keepalive_timeout_ms": bounds.SERVER_ANSWER * 1000,
    }
    return DefaultChannelBuilder(url, channelOptions=list(milliseconds.items()))


def stop_client(session: SparkSession, *, is_reachable: bool = True) -> None:
    """Ends a session of a Spark Connect server, and all that its finaliser would still do. pyspark's closes the client
    once more, whenever the garbage collector comes by: it ends the threads that all sessions of this process share, and
    when it comes by while one of them is being given work, it waits for a lock of its own for ever."""
    if is_reachable:
        with suppress(Exception):
            session.stop()
    session.client.close = lambda: None


def _apply(session: SparkSession, conf: Mapping[str, str]) -> None:
    """To a session of a Connect server: all at once, or one by one to learn which the server does not take."""
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
                    "The Spark Connect server wants a password",
                    hint="Set SPARK_CONNECT_AUTHENTICATE_TOKEN to the server's; without TLS it is sent to `localhost` "
                    "only, by that name in spark.url",
                ) from error
            if name in INVARIANTS:
                raise EngineFailed(f"The Spark Connect server refuses {name}={value}: {error}") from error
            raise EngineFailed(
                f"spark.conf: {name} cannot be set by a client of Spark Connect",
                hint="Set it where the server is started, and take it out of the spec",
            ) from error


def _require_listener(url: str) -> None:
    """pyspark goes on trying for minutes when nobody listens."""
    if refusal := _refusal_of(url):
        raise refusal


def _refusal_of(url: str) -> EngineFailed | None:
    """Why nobody can be reached at a Connect server's URL; None when somebody listens."""
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


def _require_extensions(spark: SparkSession, jar_sets: Collection[str]) -> None:
    if "delta" in jar_sets and "DeltaSparkSessionExtension" not in (spark.conf.get("spark.sql.extensions", "") or ""):
        raise EngineFailed(
            "The Spark Connect server has no Delta",
            hint="Start one that has: `flowctl spark-server`; another one needs Delta's jars, "
            "spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension and "
            "spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog",
        )
