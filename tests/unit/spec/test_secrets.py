"""Secret references: parsed when loaded, revealed on use, hidden everywhere after."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import quote

import pytest

from flowctl.errors import TableError
from flowctl.spec.secrets import REDACTOR, Redactor, parse_secrets, password_in_clear, reveal
from flowctl.spec.spec import SecretRef, SecretText

PASSWORD = "p@ss/w:rd% ü"


def test_parsing() -> None:
    assert parse_secrets("plain $${x}") == "plain ${x}"
    assert parse_secrets("${secret:env:A}") == SecretText((SecretRef("env", "A"),))
    assert parse_secrets("u:${secret:env:A}@${secret:file:/run/b}x") == SecretText(
        ("u:", SecretRef("env", "A"), "@", SecretRef("file", "/run/b"), "x")
    )
    assert parse_secrets("${table}") == "${table}"


def test_the_text_shows_references_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A", PASSWORD)
    text = parse_secrets("postgresql://u:${secret:env:A}@h/d")
    assert str(text) == "postgresql://u:${secret:env:A}@h/d"
    assert PASSWORD not in repr(text)


def test_values_are_encoded_inside_urls_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("A", PASSWORD)
    (tmp_path / "b").write_text("from a file\n", encoding="utf-8")
    options = {
        "url": parse_secrets("postgresql://u:${secret:env:A}@h/d"),
        "password": parse_secrets("${secret:env:A}"),
        "nested": {"key": parse_secrets(f"${{secret:file:{tmp_path / 'b'}}}")},
        "port": 5432,
    }
    assert reveal(options) == {
        "url": f"postgresql://u:{quote(PASSWORD, safe='')}@h/d",
        "password": PASSWORD,
        "nested": {"key": "from a file"},
        "port": 5432,
    }


@pytest.mark.parametrize("reference", ["${secret:env:NOT_THERE}", "${secret:file:not/there}"])
def test_a_missing_secret_is_an_error_with_its_name(reference: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOT_THERE", raising=False)
    with pytest.raises(TableError, match=r"NOT_THERE|not/there"):
        reveal(parse_secrets(reference))


def test_what_is_revealed_is_redacted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A", "revealed-here")
    reveal(parse_secrets("${secret:env:A}"))
    assert REDACTOR.redact("it was revealed-here.") == "it was ***."


@pytest.mark.parametrize("secret", [PASSWORD, 'quote"and\\slash', "first line\nsecond line", "100%25 sure", "a+b c"])
def test_every_form_is_redacted(secret: str) -> None:
    redactor = Redactor()
    redactor.register(secret)
    for form in (secret, quote(secret, safe=""), quote(secret), json.dumps(secret)[1:-1], *secret.splitlines()):
        assert redactor.redact(f"<{form}>") == "<***>"


def test_a_percent_encoded_secret_is_redacted_decoded_too() -> None:
    redactor = Redactor()
    redactor.register("p%40ss")
    assert redactor.redact("p@ss") == "***"


@pytest.mark.parametrize(
    "url",
    ["postgresql://etl:p@ss-word@h:5432/d", "postgresql://etl:p%40ss-word@h/d?x=1", "host=h password=p@ss-word user=u"],
)
def test_of_a_url_that_is_a_secret_the_password_alone_is_one_too(url: str) -> None:
    redactor = Redactor()
    redactor.register(url)
    assert redactor.redact('authentication of "etl" with p@ss-word failed') == 'authentication of "etl" with *** failed'
    assert redactor.redact(url) == "***"


def test_the_longest_secret_goes_first() -> None:
    redactor = Redactor()
    redactor.register("abcd")
    redactor.register("abcdefgh")
    assert redactor.redact("abcdefgh abcd") == "*** ***"


def test_tiny_secrets_would_hide_everything() -> None:
    redactor = Redactor()
    redactor.register("1")
    assert redactor.redact("11 rows") == "11 rows"


@pytest.mark.parametrize(
    ("text", "in_clear"),
    [
        ("postgresql://u:pw@h/d", True),
        ("postgresql://u:${secret:env:A}@h/d", False),
        ("postgresql://u:x${secret:env:A}@h/d", True),
        ("postgresql://u@h:5432/d", False),
        ("postgresql://h/d?user=u&password=pw", True),
        ("postgresql://h/d?user=u&password=${secret:env:A}", False),
        ("s3://lake/a:b@c", False),
        ("plain text: no url @ all", False),
    ],
)
def test_passwords_in_urls(text: str, in_clear: bool) -> None:
    assert password_in_clear(text) is in_clear
