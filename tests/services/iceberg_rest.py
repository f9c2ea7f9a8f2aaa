"""An Iceberg REST catalog: the server that Iceberg's own tests use, over SQLite; and a gate before it that loses
answers."""

from __future__ import annotations

import http.client
import re
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Literal

from flowctl.engine import java
from flowctl.engine.jars import spark_jars
from tests.services import ivy
from tests.services.cache import cached
from tests.services.processes import HOST, free_port, running
from tests.services.web import Handler, serving

_IVY_FILE = Path(__file__).parent / "iceberg_rest.xml"
_MAIN = "org.apache.iceberg.rest.RESTCatalogServer"
_JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_COMMIT = re.compile(r"/v1/namespaces/[^/]+/tables(/[^/]+)?")


@dataclass(frozen=True)
class Server:
    """``warehouse`` is the root of its tables, on this machine."""

    folder: Path
    port: int

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    @property
    def warehouse(self) -> Path:
        return self.folder / "warehouse"

    @contextmanager
    def started(self) -> Iterator[str]:
        """Its :attr:`url`, while it runs."""
        hadoop = [str(jar) for jar in spark_jars().glob("hadoop-client-*.jar")]
        classes = ":".join([f"{cached('iceberg-rest-1.10.1', _fetch)}/*", *hadoop])
        command = [str(java.find().command), *_JVM, "-cp", classes, _MAIN]
        env = {
            "CATALOG_WAREHOUSE": str(self.warehouse),
            "CATALOG_URI": f"jdbc:sqlite:{self.folder}/catalog.db",
            "CATALOG_REST_PORT": str(self.port),
        }
        with running(command, log=self.folder / "catalog.log", answers=self._answers, seconds=60, env=env):
            yield self.url

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/v1/config", timeout=5):
                return True
        except (OSError, urllib.error.URLError):
            return False


@contextmanager
def server() -> Iterator[Server]:
    """A new one, started."""
    with tempfile.TemporaryDirectory(prefix="flowctl-iceberg-", ignore_cleanup_errors=True) as folder:
        made = Server(Path(folder), free_port())
        with made.started():
            yield made


def _fetch(folder: Path) -> None:
    ivy.retrieve(_IVY_FILE, folder)


#: What happens to the answer of a commit that the catalog has made, or to the commit.
Habit = Literal["none", "bad gateway", "drops the answer", "unavailable"]


@dataclass
class Gate:
    """``url`` stands for the catalog's own. The next commit meets the ``habit``, which then ends."""

    upstream: int
    habit: Habit = "none"
    url: str = ""
    lost: list[str] = field(default_factory=list)


@contextmanager
def gate(behind: Server) -> Iterator[Gate]:
    made = Gate(behind.port)
    with serving(_handler(made)) as port:
        made.url = f"http://{HOST}:{port}"
        yield made


def _handler(between: Gate) -> type[BaseHTTPRequestHandler]:
    class Forwarding(Handler):
        protocol_version = "HTTP/1.1"

        def respond(self) -> None:
            content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            is_commit = self.command == "POST" and _COMMIT.fullmatch(self.path) is not None
            habit, between.habit = (between.habit, "none") if is_commit else ("none", between.habit)
            if habit == "unavailable":
                self.answer(503, b"{}")
                return
            upstream = http.client.HTTPConnection(HOST, between.upstream, timeout=60)
            headers = {name: value for name, value in self.headers.items() if name.lower() != "accept-encoding"}
            upstream.request(self.command, self.path, content, headers)
            answer = upstream.getresponse()
            body = answer.read()
            upstream.close()
            if habit != "none":
                between.lost.append(self.path)
            if habit == "drops the answer":
                self.close_connection = True
                self.connection.close()
            elif habit == "bad gateway":
                self.answer(502, b"{}")
            else:
                self.answer(answer.status, body)

    return Forwarding
