"""A registry by its own words: what it has, whom it lets in, and why it does not answer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from flowctl.connectors.kafka.registry import Registry, Standing
from flowctl.connectors.kafka.schema_ids import HeaderId
from flowctl.errors import FlowctlError, TableError, TransientError
from tests.services import schemas
from tests.services.kafka_security import PASSWORD as CLIENT_SECRET
from tests.services.kafka_security import USER, TokenServer, make_authority, token_server
from tests.services.processes import HOST, free_port

LONG = '{"type": "record", "name": "A", "fields": [{"name": "id", "type": "long"}]}'
WIDER = LONG.replace("]}", ', {"name": "x", "type": "int", "default": 1}]}')
ALLOWED = {"username": schemas.USER, "password": schemas.PASSWORD}


def registry(url: str, base_dir: str = ".", **options: Any) -> Registry:
    return Registry({"url": url, **options}, base_dir)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    authority = make_authority(folder, "ca")
    for name in ("server", "client"):
        authority.sign(name)
    authority.sign("expired", days=-1)
    make_authority(folder, "other").sign("stranger")
    return folder


@pytest.fixture(scope="module")
def guarded(schema_registry: str, certificates: Path) -> Iterator[str]:
    with schemas.gate(schema_registry, certificates) as url:
        yield url


def test_versions_of_a_subject(schema_registry: str, topic: str) -> None:
    found = registry(schema_registry)
    assert found.latest(topic) is None
    one = schemas.register(schema_registry, topic, LONG)
    first = found.latest(topic)
    assert first is not None
    assert (first.id, first.version, first.kind, first.references) == (one, 1, "AVRO", {})
    two = schemas.register(schema_registry, topic, WIDER)
    second = found.latest(topic)
    assert second is not None
    assert (second.id, second.version) == (two, 2)
    assert [found.version_of(id, topic) for id in (one, two)] == [1, 2]
    assert found.version_of(two, "another") is None
    assert topic in found.subjects()


def test_where_a_schema_stands(schema_registry: str, topic: str) -> None:
    """Asking registers nothing."""
    found = registry(schema_registry)
    assert found.assess(topic, LONG, "AVRO") == Standing(1, "new")
    assert found.latest(topic) is None
    id = found.register(topic, LONG, "AVRO")
    assert found.assess(topic, LONG, "AVRO") == Standing(1, "registered", id)
    schemas.require_compatibility(schema_registry, topic, "BACKWARD")
    assert found.assess(topic, WIDER, "AVRO") == Standing(2, "new")
    assert found.assess(topic, LONG.replace("long", "string"), "AVRO") == Standing(2, "refused")
    assert schemas.versions(schema_registry, topic) == [1]


def test_versions_are_asked_for_one_by_one(schema_registry: str, topic: str) -> None:
    found = registry(schema_registry)
    assert list(found.versions(topic)) == []
    for text in (LONG, WIDER):
        found.register(topic, text, "AVRO")
    assert [(one.version, one.kind) for one in found.versions(topic)] == [(2, "AVRO"), (1, "AVRO")]


def test_an_id_that_is_registered_only_now(schema_registry: str, topic: str) -> None:
    found = registry(schema_registry)
    latest = schemas.register(schema_registry, f"{topic}-a", LONG.replace("id", f"id{hash(topic) % 1000}"))
    assert found.by_id(latest + 1) is None
    new = schemas.register(schema_registry, f"{topic}-b", LONG.replace("id", f"new{hash(topic) % 1000}"))
    assert new == latest + 1
    made = found.by_id(new)
    assert made is not None
    assert "new" in made.text


def test_ids_of_apicurio(schema_registry: str, topic: str) -> None:
    """One content in two subjects has two global ids, and one id of the content."""
    text, found = LONG.replace('"A"', f'"T{abs(hash(topic))}"'), registry(schema_registry)
    content, again = (schemas.register(schema_registry, f"{topic}-{name}", text) for name in ("one", "two"))
    one, two = (schemas.global_id(schema_registry, f"{topic}-{name}") for name in ("one", "two"))
    assert content == again
    assert one != two
    for id in (HeaderId("globalId", one), HeaderId("globalId", two), HeaderId("contentId", content)):
        made = found.by_id(id)
        assert made is not None
        assert (made.kind, json.loads(made.text)) == ("AVRO", json.loads(text))
        assert (found.version_of(id, f"{topic}-two"), found.version_of(id, "another")) == (1, None)
    assert [found.by_id(HeaderId(kind, 2**40)) for kind in ("globalId", "contentId")] == [None, None]
    elsewhere = registry(schema_registry.partition("/apis/")[0] + "/apis")
    assert elsewhere.by_id(HeaderId("globalId", one)) is None
    with schemas.gate(schema_registry, status=404) as url, pytest.raises(TableError, match="is no Apicurio 3"):
        registry(f"{url}/apis/ccompat/v7").by_id(HeaderId("globalId", one))


def test_references_of_apicurio(schema_registry: str, topic: str) -> None:
    inner = '{"type": "record", "name": "In", "namespace": "shop", "fields": []}'
    outer = '{"type": "record", "name": "Out", "namespace": "shop", "fields": [{"name": "in", "type": "shop.In"}]}'
    schemas.register(schema_registry, f"{topic}-in", inner)
    schemas.register(schema_registry, topic, outer, "AVRO", (("shop.In", f"{topic}-in", 1),))
    found = registry(schema_registry).by_id(HeaderId("globalId", schemas.global_id(schema_registry, topic)))
    assert found is not None
    assert {name: json.loads(text) for name, text in found.references.items()} == {"shop.In": json.loads(inner)}


def test_guids(schema_registry: str, topic: str) -> None:
    """Apicurio has none: the gate gives one to a schema, as Confluent's registry does."""
    guid = "89791762-2336-186f-9674-180f3d0d2c1f"
    id = schemas.register(schema_registry, topic, LONG)
    with schemas.gate(schema_registry, guids={guid: id}) as url:
        found = registry(url, **ALLOWED).by_id(HeaderId("guid", guid))
    assert found is not None
    assert json.loads(found.text) == json.loads(LONG)
    with pytest.raises(TableError, match="has none"):
        registry(schema_registry).by_id(HeaderId("guid", guid))


def test_references_come_before_what_needs_them(schema_registry: str, topic: str) -> None:
    inner = '{"type": "record", "name": "In", "namespace": "shop", "fields": []}'
    middle = '{"type": "record", "name": "Mid", "namespace": "shop", "fields": [{"name": "in", "type": "shop.In"}]}'
    outer = '{"type": "record", "name": "Out", "namespace": "shop", "fields": [{"name": "mid", "type": "shop.Mid"}]}'
    schemas.register(schema_registry, f"{topic}-in", inner)
    schemas.register(schema_registry, f"{topic}-mid", middle, "AVRO", (("shop.In", f"{topic}-in", 1),))
    id = schemas.register(schema_registry, topic, outer, "AVRO", (("shop.Mid", f"{topic}-mid", 1),))
    found = registry(schema_registry).by_id(id)
    assert found is not None
    assert list(found.references) == ["shop.In", "shop.Mid"]


@pytest.mark.parametrize("as_text", [False, True])
def test_a_user_and_certificates_as_files_or_texts(guarded: str, certificates: Path, as_text: bool, topic: str) -> None:
    files = {"ca": "ca.pem", "certificate": "client.pem", "key": "client.key"}
    tls = {name: (certificates / file).read_text() if as_text else file for name, file in files.items()}
    assert registry(guarded, str(certificates), **ALLOWED, tls=tls).latest(topic) is None


@pytest.mark.parametrize(
    ("options", "tls", "error", "said"),
    [
        ({**ALLOWED, "password": "wrong-secret"}, {}, TableError, "refuses this user (HTTP 401)"),
        ({}, {}, TableError, "refuses this user (HTTP 401)"),
        (ALLOWED, {"ca": "other.pem"}, TableError, "is not accepted: "),
        (ALLOWED, {"ca": None}, TableError, "is not accepted: "),
        (ALLOWED, {"certificate": None, "key": None}, FlowctlError, "certificate"),
        (ALLOWED, {"certificate": "stranger.pem", "key": "stranger.key"}, FlowctlError, "unknown ca"),
        (ALLOWED, {"certificate": "expired.pem", "key": "expired.key"}, FlowctlError, "certificate expired"),
        (ALLOWED, {"ca": "nowhere.pem"}, TableError, "registry.tls.ca: there is no file"),
        (ALLOWED, {"ca": "client.key"}, TableError, "cannot be used"),
        (ALLOWED, {"key": "stranger.key"}, TableError, "cannot be used"),
    ],
)
def test_who_is_not_let_in_is_told_why(
    guarded: str, certificates: Path, options: Mapping[str, str], tls: dict[str, str], error: type, said: str
) -> None:
    files = {"ca": "ca.pem", "certificate": "client.pem", "key": "client.key", **tls}
    given = {name: file for name, file in files.items() if file}
    with pytest.raises(error) as refused:
        registry(guarded, str(certificates), **options, tls=given).latest("it")
    assert said in refused.value.sentences.replace("_", " ").lower().replace("http", "HTTP")
    assert "secret" not in refused.value.sentences


@pytest.mark.parametrize(
    ("status", "error", "said"),
    [
        (500, TransientError, "cannot answer (HTTP 500)"),
        (429, TransientError, "cannot answer (HTTP 429)"),
        (404, TableError, "is no schema registry (HTTP 404)"),
        (403, TableError, "refuses this user (HTTP 403)"),
        (422, TableError, "says: no (HTTP 422)"),
    ],
)
def test_what_it_answers_instead(schema_registry: str, status: int, error: type, said: str) -> None:
    with schemas.gate(schema_registry, status=status) as url, pytest.raises(error) as refused:
        registry(url).by_id(1)
    assert said in refused.value.sentences


def oauth(tokens: TokenServer, **changed: str) -> dict[str, str]:
    known = {"token_url": tokens.url, "client_id": USER, "client_secret": CLIENT_SECRET, "scope": "schemas"}
    return {**known, **changed}


def test_a_token_is_used_until_it_has_to_be_renewed(schema_registry: str, topic: str) -> None:
    with token_server() as tokens, schemas.gate(schema_registry, tokens=tokens) as url:
        found = registry(url, oauth=oauth(tokens))
        assert (found.latest(topic), found.by_id(2**31 - 1)) == (None, None)
        assert (len(tokens.issued), tokens.scopes) == (1, ["schemas"])
    with token_server(seconds=0) as tokens, schemas.gate(schema_registry, tokens=tokens) as url:
        found = registry(url, oauth=oauth(tokens))
        assert (found.latest(topic), found.by_id(2**31 - 1)) == (None, None)
        assert len(set(tokens.issued)) == 2


def test_the_servers_of_schemas_and_tokens_are_trusted_alike(
    schema_registry: str, certificates: Path, topic: str
) -> None:
    """The token endpoint is behind a certificate of the same authority."""
    files = {"ca": "ca.pem", "certificate": "client.pem", "key": "client.key"}
    with token_server() as tokens, schemas.gate(schema_registry, certificates, tokens=tokens) as url:
        behind_tls = f"{url}/token"
        with pytest.raises(TableError, match="is no token endpoint"):  # it answers, after the handshake
            registry(url, str(certificates), tls=files, oauth=oauth(tokens, token_url=behind_tls)).latest(topic)
        with pytest.raises(TableError, match="has a certificate that is not accepted"):
            registry(url, oauth=oauth(tokens, token_url=behind_tls)).latest(topic)
        assert registry(url, str(certificates), tls=files, oauth=oauth(tokens)).latest(topic) is None


@pytest.mark.parametrize(
    ("changed", "error", "said"),
    [
        ({"client_secret": "wrong-secret"}, TableError, "invalid_client. Check `registry.oauth`: client_id"),
        ({"token_url": f"http://{HOST}:{free_port()}/token"}, TransientError, "does not answer"),
    ],
)
def test_who_gets_no_token_is_told_why(
    schema_registry: str, changed: dict[str, str], error: type[FlowctlError], said: str
) -> None:
    with token_server() as tokens, pytest.raises(error) as refused:
        registry(schema_registry, oauth=oauth(tokens, **changed)).latest("it")
    assert f"no token for {schema_registry}" in refused.value.sentences
    assert said in refused.value.sentences
    assert "secret" not in refused.value.sentences.replace("client_secret", "")


def test_a_token_that_the_registry_refuses(schema_registry: str) -> None:
    with (
        token_server() as tokens,
        token_server() as others,
        schemas.gate(schema_registry, tokens=others) as url,
        pytest.raises(TableError, match=r"refuses this client \(HTTP 401\)") as refused,
    ):
        registry(url, oauth=oauth(tokens)).latest("it")
    assert refused.value.hint == "Check `registry.oauth`, and what the client may read and register"


def test_nobody_answers() -> None:
    with pytest.raises(TransientError, match="does not answer"):
        registry(f"http://{HOST}:{free_port()}").latest("it")
