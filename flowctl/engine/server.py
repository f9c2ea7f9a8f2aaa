"""A Spark Connect server in the foreground: one warm JVM for many short runs (`spark: {url: sc://…}`).

It is the same application that a large run would start, with the jars of all connectors and an open port. Clients send
their settings and storage credentials with their sessions; the server stores neither.
"""

from __future__ import annotations

import errno
import ipaddress
import os
import re
import signal
import socket
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

from flowctl.engine import jars, processes, timeouts
from flowctl.engine.base import Engine
from flowctl.engine.conf import Extension
from flowctl.engine.start import open_engine
from flowctl.errors import EngineFailed, UsageError
from flowctl.spec.spec import SparkSettings

#: Spark's own variable: clients whose token differs are rejected.
TOKEN_VARIABLE = "SPARK_CONNECT_AUTHENTICATE_TOKEN"
# Spark's redaction pattern: settings with such names would be visible on the JVM's command line.
_SECRET = re.compile(r"(?i)secret|password|token|access[.]?key")


@dataclass(frozen=True)
class Address:
    """Where the server listens; port 0 means any free one."""

    host: str
    port: int

    def is_loopback(self) -> bool:
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def serve(
    settings: SparkSettings,
    address: Address,
    ready: Callable[[str], None],
    *,
    extensions: Collection[Extension] = (),
    verbose: bool = False,
    say: Callable[[str], None],
) -> None:
    """Runs until SIGTERM or SIGINT; ``ready`` gets the ``sc://`` URL once clients may connect. Call it from the main
    thread. Raises what :func:`open_engine` raises, and :class:`EngineFailed` if the port is in use or the JVM ends."""
    _refuse_secrets(settings)
    _require_free(address)
    if not address.is_loopback():
        say(_describe_exposure(address))
    try:
        with _end_by_signals(), _open_server(settings, address, extensions, verbose, say) as (engine, port):
            ready(f"sc://{_reachable_host(address.host)}:{port}")
            _wait_for_end(engine)
    except KeyboardInterrupt:
        return


@contextmanager
def _open_server(
    settings: SparkSettings,
    address: Address,
    extensions: Collection[Extension],
    verbose: bool,
    say: Callable[[str], None],
) -> Iterator[tuple[Engine, int]]:
    own = {"spark.connect.grpc.binding.address": address.host, "spark.connect.grpc.binding.port": str(address.port)}
    application = replace(settings, conf={**settings.conf, **own})
    # Always `large`, whatever the first client does: the JVM is long-running, so the optimizing compiler pays off.
    with open_engine(application, jars.sets(), {}, "large", extensions=extensions, verbose=verbose, say=say) as engine:
        yield engine, _open_port(engine, address)


def _open_port(engine: Engine, address: Address) -> int:
    """Starts the Connect service and returns its port."""
    from py4j.protocol import Py4JError

    jvm: Any = engine.spark._jvm
    service = getattr(getattr(jvm, "org.apache.spark.sql.connect.service.SparkConnectService$"), "MODULE$")
    try:
        service.start(engine.spark._jsc.sc())
        return int(service.localPort())
    except Py4JError as error:
        cause = str(getattr(error, "java_exception", error)).splitlines()[0]
        raise EngineFailed(
            f"Spark Connect cannot listen at {address.host}:{address.port}: {cause}",
            hint="Check --bind and --port, and that spark.conf has no settings of another Connect server",
        ) from error


def _wait_for_end(engine: Engine) -> None:
    assert engine.process is not None  # a classic application has a JVM of its own
    code = engine.process.wait()
    raise EngineFailed(
        f"Spark's JVM ended by itself with exit code {code}: {engine.log_tail(5)}",
        hint="Give it more memory: --conf spark.driver.memory=…; --verbose shows Spark's own log",
    )


@contextmanager
def _end_by_signals() -> Iterator[None]:
    """SIGTERM raises :class:`KeyboardInterrupt`, like Ctrl-C; a second signal ends the process immediately, and the JVM
    with it."""
    both = (signal.SIGTERM, signal.SIGINT)

    def handle(_number: int, _frame: FrameType | None) -> None:
        for number in both:
            signal.signal(number, signal.SIG_DFL)
        late = threading.Timer(timeouts.ABANDON, processes.kill_all)
        late.daemon = True
        late.start()
        raise KeyboardInterrupt

    before = {number: signal.signal(number, handle) for number in both}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _require_free(address: Address) -> None:
    """Raises :class:`EngineFailed` if the address cannot be bound, before a JVM is started needlessly."""
    where = f"{address.host}:{address.port}"
    try:
        family, kind, _, _, target = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(target)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise EngineFailed(f"{where} is taken", hint="Choose another --port, or end what listens there") from error
        raise EngineFailed(f"Cannot listen at {where}: {error}", hint="Check --bind and --port") from error


def _refuse_secrets(settings: SparkSettings) -> None:
    for name in settings.conf:
        if _SECRET.search(name):
            raise UsageError(
                f"--conf {name} would be visible in the machine's process list",
                hint="Set it in the specs of the clients, which have the credentials of their storage",
            )


def _describe_exposure(address: Address) -> str:
    who = (
        f"anyone who has {TOKEN_VARIABLE} and"
        if os.environ.get(TOKEN_VARIABLE)
        else "Spark Connect does not authenticate clients: anyone who"
    )
    return f"warning: {who} reaches {address.host}:{address.port} can run code as this user; nothing is encrypted"


def _reachable_host(host: str) -> str:
    """An address that a client can name."""
    if host in ("0.0.0.0", "::"):
        return socket.gethostname()
    return f"[{host}]" if ":" in host else host
