"""Connections given as one text: what each form means, and that no secret in it is shown."""

from __future__ import annotations

from typing import Any

import pytest

from flowctl.diagnostics import Mark
from flowctl.redaction import REDACTOR
from flowctl.spec import build
from flowctl.spec.findings import Findings
from flowctl.spec.given import read_given
from flowctl.spec.node import plain
from flowctl.spec.schema import connector_schema, connector_types
from flowctl.spec.secrets import mask_passwords, password_in_clear, reveal

MARK = Mark("FLOWCTL_CONN_X", 0)


def read(text: str) -> tuple[Any, dict[str, Any]]:
    """As it is shown, and as it is opened."""
    findings = Findings()
    entry = read_given(text, MARK, findings)
    assert findings.diagnostics == []
    connection = build.connection("x", entry, "variable")
    return plain(entry), {"type": connection.type, **reveal(connection.options)}


@pytest.mark.parametrize(
    ("text", "entry"),
    [
        ("sqlite:app.db", {"type": "sqlite", "path": "app.db"}),
        ("sqlite://data/app.db", {"type": "sqlite", "path": "data/app.db"}),
        (" sqlite:///data/app.db ", {"type": "sqlite", "path": "/data/app.db"}),
        ("delta:s3://lake/dev", {"type": "delta", "path": "s3://lake/dev"}),
        ("files:/inbox", {"type": "files", "path": "/inbox"}),
        ("kafka:a:9092,b:9092", {"type": "kafka", "brokers": "a:9092,b:9092"}),
        ("kafka://a:9092", {"type": "kafka", "brokers": "a:9092"}),
        ("postgres://etl@db/shop", {"type": "postgres", "url": "postgres://etl@db/shop"}),
        ("postgresql://db/shop?sslmode=require", {"type": "postgres", "url": "postgresql://db/shop?sslmode=require"}),
        ("{type: sqlite, path: app.db}", {"type": "sqlite", "path": "app.db"}),
        ('{"type": "sqlite", "path": "{{ x }}"}', {"type": "sqlite", "path": "{{ x }}"}),
        ("{type: kafka, brokers: 'a:1', tls: true}", {"type": "kafka", "brokers": "a:1", "tls": True}),
    ],
)
def test_every_form_is_an_entry(text: str, entry: dict[str, Any]) -> None:
    assert read(text) == (entry, entry)


@pytest.mark.parametrize("type", connector_types())
def test_the_example_of_every_connector_is_read(type: str) -> None:
    shown, _ = read(connector_schema(type)["x-url"]["example"])
    assert shown["type"] == type


def test_references_are_kept_and_resolved_on_use(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PW", "a/b")
    text = "postgresql://etl:${secret:env:PW}@db/shop"
    shown, opened = read(text)
    assert shown["url"] == text
    assert opened["url"] == "postgresql://etl:a%2Fb@db/shop"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://etl:s3cret%2Fword@db/shop", "postgresql://etl:***@db/shop"),
        ("postgresql://etl:s3cret${word@db/shop", "postgresql://etl:***@db/shop"),
        ("postgresql://etl:${secret:env:PW}s3cret%2Fword@db/shop", "postgresql://etl:${secret:env:PW}***@db/shop"),
        ("postgresql://db/shop?user=etl&password=s3cret%2Fword&x=1", "postgresql://db/shop?user=etl&password=***&x=1"),
        ("postgresql://u:s3cret-1@db/shop?sslpassword=s3cret-2", "postgresql://u:***@db/shop?sslpassword=***"),
        ("postgresql://u:a;password=s3cret@db/shop", "postgresql://u:***@db/shop"),
    ],
)
def test_passwords_in_urls_are_masked_and_redacted(monkeypatch: pytest.MonkeyPatch, text: str, shown: str) -> None:
    monkeypatch.setenv("PW", "f1rst-half")
    masked, opened = read(text)
    assert masked["url"] == shown
    assert opened["url"] == text.replace("${secret:env:PW}", "f1rst-half")
    assert "s3cret" not in REDACTOR.redact(f"cannot connect: {text}, s3cret/word, s3cret%2Fword")


def test_secret_properties_of_a_map_are_masked_and_redacted() -> None:
    shown, opened = read("{type: postgres, host: db, database: shop, user: u, password: h1dden/word, "
                         "options: {sslpassword: h1dden-too}}")  # fmt: skip
    assert (shown["password"], shown["options"]) == ("***", {"sslpassword": "***"})
    assert (opened["password"], opened["options"]) == ("h1dden/word", {"sslpassword": "h1dden-too"})
    assert "h1dden" not in REDACTOR.redact("h1dden/word h1dden%2Fword h1dden-too")


def test_a_value_shows_no_secret() -> None:
    entry = read_given("postgresql://etl:p1ain-text@db/shop", MARK, Findings())
    assert "p1ain-text" not in repr(build.connection("x", entry, "variable")) + repr(entry)


def test_text_without_a_password_is_unchanged() -> None:
    for text in ("", "app.db", "s3://lake/a@b:c", "postgresql://etl@db:5432/shop", "a:b@c", "${secret:env:URL}"):
        assert mask_passwords(text) is text and not password_in_clear(text)


HIDDEN = [
    "hunter2",
    "hunter2:x",
    "postgresql://u:hun/hunter2@db/x",
    "PostgreSQL://u:hunter2@db/x",
    "rabbitmq://u:hunter2@db",
    "{type: postgres, hunter2",
    "{a: {hunter2 x: 1}}",
    "{type: postgres, password: 4711}",
    "[hunter2]",
    "{}",
    "",
]


@pytest.mark.parametrize("text", HIDDEN)
def test_errors_never_repeat_the_text(text: str) -> None:
    findings = Findings()
    assert read_given(text, MARK, findings).entries == {}
    assert findings.diagnostics and all(one.mark == MARK and one.hint for one in findings.diagnostics)
    assert not any("hunter2" in one.render() or "4711" in one.render() for one in findings.diagnostics)
