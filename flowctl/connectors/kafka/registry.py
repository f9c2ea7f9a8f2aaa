"""A schema registry with Confluent's interface (Confluent, Apicurio, Redpanda): schemas by subject, and by id."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, Literal

from flowctl.connectors.kafka.apicurio import find_artifact, own_url
from flowctl.connectors.kafka.registry_access import SECONDS, Access, answer, opened
from flowctl.connectors.kafka.schema_ids import HeaderId, SchemaId
from flowctl.errors import FlowctlError, TableError, TransientError
from flowctl.text import counted

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema as Found
    from confluent_kafka.schema_registry import SchemaRegistryClient, SchemaRegistryError

Kind = Literal["AVRO", "PROTOBUF", "JSON"]
#: The registry's own codes: there is no such subject, version or schema.
_MISSING = (40401, 40402, 40403)
#: What to do about a schema that a subject does not allow.
NOT_ALLOWED = "Change the columns so that it does, its compatibility in the registry, or `subject` in `format`"
_IDS = "Update the registry, or let producers write ids into the messages themselves"
#: A request is sent so many times more after a failure.
_RETRIES = 2


@dataclass(frozen=True)
class Schema:
    """``references`` are the texts of the schemas that it imports, by the names under which it does, each after those
    that it needs itself. ``version`` is that in its subject; 0: it was asked for by its id. ``id`` is Confluent's; 0: a
    header has another."""

    id: int
    version: int
    kind: str
    text: str
    references: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Standing:
    """A schema and its subject: ``version`` is the one that it is, or would become; ``refused``: the subject's
    compatibility does not allow it. ``id``, of a registered one."""

    version: int
    kind: Literal["registered", "new", "refused"]
    id: int | None = None


class Registry:
    """``options`` are the connection's `registry`, with its secrets resolved. Asks for nothing when it is made, and for
    no schema twice."""

    def __init__(self, options: Mapping[str, Any], base_dir: str) -> None:
        self.url = str(options["url"])
        self._options = options
        self._base_dir = base_dir
        self._known: dict[SchemaId, Schema | None] = {}

    def latest(self, subject: str) -> Schema | None:
        """The newest version; None if there is no such subject."""
        found = self._asked(lambda: self._client.get_latest_version(subject))
        if found is None:
            return None
        made = self._schema(found.schema_id, found.schema, found.version)
        self._known[made.id] = made
        return made

    def by_id(self, id: SchemaId) -> Schema | None:
        """What was registered under an id stays. An unknown id is asked for again: it may be registered meanwhile."""
        if self._known.get(id) is None:
            self._known[id] = self._found(id)
        return self._known[id]

    def versions(self, subject: str) -> Iterator[Schema]:
        """Those of ``subject``, the newest first; each is asked for when it is needed."""
        newest = self.latest(subject)
        if newest is None:
            return
        yield newest
        for version in sorted(self._asked(lambda: self._client.get_versions(subject)) or [], reverse=True):
            if version >= newest.version:
                continue
            found = self._asked(partial(self._client.get_version, subject, version))
            if found is not None:  # it may be deleted meanwhile
                yield self._schema(found.schema_id, found.schema, version)

    def assess(self, subject: str, text: str, kind: Kind) -> Standing:
        """What :meth:`register` would do. Compares with the newest version only, as every registry can."""
        from confluent_kafka.schema_registry import Schema as Given

        given = Given(text, kind)
        if found := self._asked(lambda: self._client.lookup_schema(subject, given)):
            return Standing(found.version, "registered", found.schema_id)
        newest = self.latest(subject)
        if newest is None:
            return Standing(1, "new")
        is_allowed = self._asked(lambda: self._client.test_compatibility(subject, given))
        return Standing(newest.version + 1, "new" if is_allowed else "refused")

    def register(self, subject: str, text: str, kind: Kind) -> int:
        """The id of a schema, which becomes the newest version of ``subject`` unless it is one. Raises ``TableError``
        if the subject's compatibility does not allow it."""
        from confluent_kafka.schema_registry import Schema as Given

        try:
            return int(self._asked(lambda: self._client.register_schema(subject, Given(text, kind))))
        except TableError as error:
            if not (cause := _registry_error(error)) or cause.http_status_code != 409:
                raise
            raise TableError(
                f"subject {subject} does not allow the new schema: {_first_line(cause.error_message)}",
                hint=NOT_ALLOWED,
            ) from error

    def version_of(self, id: SchemaId, subject: str) -> int | None:
        """The version that the schema is in ``subject``; None if it is in none."""
        if isinstance(id, HeaderId):
            return self._version_with(self.by_id(id), subject)
        found = self._asked(lambda: self._client.get_schema_versions(id)) or []
        return max((one.version for one in found if one.subject == subject), default=None)

    def greet(self) -> str:
        return f"a schema registry with {counted(len(self.subjects()), 'subject')}"

    def subjects(self) -> list[str]:
        return self._asked(self._client.get_subjects) or []

    def _found(self, id: SchemaId) -> Schema | None:
        match id:
            case int():
                found, number = self._asked(lambda: self._client.get_schema(id)), id
            case HeaderId(kind="guid"):
                found, number = self._of_guid(str(id.value)), 0
            case _:
                return self._of_apicurio(id)
        return self._schema(number, found) if found is not None else None

    def _of_guid(self, guid: str) -> Found | None:
        try:
            return self._asked(lambda: self._client.get_schema_by_guid(guid))
        except TableError as error:
            if not (cause := _registry_error(error)) or cause.http_status_code != 404:
                raise
            what = f"messages have GUIDs of schemas in headers, and {self.url} has none"
            raise TableError(what, hint=_IDS) from error

    def _of_apicurio(self, id: HeaderId) -> Schema | None:
        url = own_url(self.url)
        try:
            found = find_artifact(id, lambda path: self._get(f"{url}/{path}")) if url else None
        except LookupError as error:
            what = f"messages have ids of Apicurio in headers, and {self.url} is no Apicurio 3"
            raise TableError(what, hint=_IDS) from error
        return Schema(0, 0, found.kind, found.text, found.references) if found is not None else None

    def _get(self, url: str) -> bytes | None:
        access = self._opened[1]
        try:
            status, body = answer(url, access.context, access.headers())
        except OSError as error:
            raise self._unreachable(str(getattr(error, "reason", "") or error)) from error
        if status in (200, 404):
            return body if status == 200 else None
        raise self._translated(status, _first_line(body.decode(errors="replace")))

    def _version_with(self, schema: Schema | None, subject: str) -> int | None:
        """The newest version with the same text: such ids do not tell it."""
        for version in reversed(self._asked(lambda: self._client.get_versions(subject)) or []):
            found = self._asked(partial(self._client.get_version, subject, version))
            if schema is not None and found is not None and _is_same(str(found.schema.schema_str), schema.text):
                return int(version)
        return None

    def _schema(self, id: int, found: Found, version: int = 0) -> Schema:
        references: dict[str, str] = {}
        self._add_references(found, references)
        return Schema(id, version, found.schema_type or "AVRO", str(found.schema_str), references)

    def _add_references(self, schema: Found, known: dict[str, str]) -> None:
        for one in schema.references or ():
            if one.name in known:
                continue
            found = self._asked(partial(self._client.get_version, one.subject, one.version))
            if found is None:
                raise TableError(
                    f"a schema refers to version {one.version} of {one.subject}, which {self.url} does not have",
                    hint="Register it again",
                )
            self._add_references(found.schema, known)
            known[one.name] = str(found.schema.schema_str)

    @cached_property
    def _opened(self) -> tuple[SchemaRegistryClient, Access]:
        from confluent_kafka.schema_registry import SchemaRegistryClient

        own = {"url": self.url, "timeout": SECONDS, "max.retries": _RETRIES, "retries.wait.ms": 200}
        own["cache.latest.ttl.sec"] = 0  # the newest version is not what it was
        with opened(self._options, self._base_dir) as access:
            return SchemaRegistryClient({**own, **access.settings}), access

    @property
    def _client(self) -> SchemaRegistryClient:
        return self._opened[0]

    def _asked(self, question: Callable[[], Any]) -> Any:
        """None: there is no such thing."""
        from confluent_kafka.schema_registry import SchemaRegistryError

        try:
            return question()
        except SchemaRegistryError as error:
            if error.error_code in _MISSING:
                return None
            raise self._translated(error.http_status_code, error.error_message) from error
        except Exception as error:
            # The client raises errors of the library that it sends requests with, under whatever name it has.
            if not type(error).__module__.startswith("httpx"):
                raise
            raise self._unreachable(str(error) or type(error).__name__) from error

    def _translated(self, status: int, message: str) -> FlowctlError:
        if status in (401, 403):
            who = "client" if "oauth" in self._options else "user"
            names = "`registry.oauth`" if "oauth" in self._options else "`registry.username` and `registry.password`"
            what = f"the registry {self.url} refuses this {who} (HTTP {status})"
            return TableError(what, hint=f"Check {names}, and what the {who} may read and register")
        if status == 404:
            return TableError(
                f"{self.url} is no schema registry (HTTP 404)",
                hint="Write the URL with its path: Apicurio's is https://host/apis/ccompat/v7",
            )
        if status >= 500 or status == 429:
            what = f"the registry {self.url} cannot answer (HTTP {status})"
            return TransientError(what, hint="Try again when it has settled")
        return TableError(f"the registry {self.url} says: {message} (HTTP {status})", hint="Check `registry.url`")

    def _unreachable(self, why: str) -> FlowctlError:
        if "CERTIFICATE_VERIFY_FAILED" in why:
            what = f"the certificate of {self.url} is not accepted: {why.partition('failed: ')[2] or why}"
            return TableError(what, hint="Check `registry.tls.ca`: it must contain the authority that has signed it")
        return TransientError(
            f"the registry {self.url} does not answer: {why}",
            hint="Check `registry.url`, and whether this machine reaches it",
        )


def _registry_error(error: TableError) -> SchemaRegistryError | None:
    from confluent_kafka.schema_registry import SchemaRegistryError

    return error.__cause__ if isinstance(error.__cause__, SchemaRegistryError) else None


def _is_same(one: str, other: str) -> bool:
    """Whether two texts are one schema: registries format them anew."""
    try:
        return bool(json.loads(one) == json.loads(other))
    except ValueError:
        return one.split() == other.split()


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0][:300]
