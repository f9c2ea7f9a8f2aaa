"""The redactor: every form in which a library may write a secret, and texts that are redacted when they are made."""

from __future__ import annotations

import base64
import html
import json
from urllib.parse import quote, quote_plus

import pytest

from flowctl.errors import TableError
from flowctl.redaction import REDACTOR, Redactor, register_environment

PASSWORD = "p@ss/w:rd% ü"
SECRETS = [PASSWORD, 'quote"and\\slash', "it's one", "first line\nsecond line", "100%25 sure", "a+b c", "<&$`{}>x"]
FORMS = {
    "raw": lambda secret: secret,
    "percent": lambda secret: quote(secret, safe=""),
    "percent of a path": quote,
    "percent of a form": quote_plus,
    "percent in lower case": lambda secret: quote(secret, safe="").lower() if secret.lower() == secret else secret,
    "percent twice": lambda secret: quote(quote(secret, safe=""), safe=""),
    "JSON": lambda secret: json.dumps(secret)[1:-1],
    "JSON of UTF-8": lambda secret: json.dumps(secret, ensure_ascii=False)[1:-1],
    "Python": lambda secret: repr(secret)[1:-1],
    "SQL": lambda secret: secret.replace("'", "''"),
    "libpq": lambda secret: secret.replace("\\", "\\\\").replace("'", "\\'"),
    "HTML": html.escape,
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("secret", SECRETS)
def test_every_form_is_redacted(secret: str, form: str) -> None:
    redactor = Redactor()
    redactor.register(secret)
    assert redactor.redact(f"<{FORMS[form](secret)}>") == "<***>"


@pytest.mark.parametrize("secret", SECRETS)
def test_lines_of_a_secret_are_secrets(secret: str) -> None:
    redactor = Redactor()
    redactor.register(secret)
    for line in secret.splitlines():
        assert redactor.redact(f"<{line}>") == "<***>"


@pytest.mark.parametrize("before", ["", "u", "us", "etl:", "user:"])
@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_base64_of_a_header(before: str, encode) -> None:
    secret = "p@ss/w:rd%~?>ü"
    redactor = Redactor()
    redactor.register(secret)
    shown = redactor.redact(f"Authorization: Basic {encode(f'{before}{secret}'.encode()).decode()}")
    assert "***" in shown
    left = shown.replace("Authorization: Basic ", "").replace("***", "").rstrip("=")
    assert len(left) <= len(before) * 4 // 3 + 4  # of the secret a character at each end


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


@pytest.mark.parametrize("url", ["postgresql://etl:s3cretpart/x@h/d", "postgresql://etl:x?s3cretpart#y@h/d"])
def test_of_a_malformed_url_the_parts_of_its_password_are_secrets(url: str) -> None:
    redactor = Redactor()
    redactor.register(url)
    assert redactor.redact("invalid literal: 's3cretpart'") == "invalid literal: '***'"


def test_the_longest_secret_goes_first() -> None:
    redactor = Redactor()
    redactor.register("abcd")
    redactor.register("abcdefgh")
    assert redactor.redact("abcdefgh abcd") == "*** ***"


def test_tiny_secrets_would_hide_everything() -> None:
    redactor = Redactor()
    redactor.register("1")
    assert redactor.redact("11 rows") == "11 rows"


def test_a_document_keeps_what_it_is_read_by() -> None:
    redactor = Redactor()
    redactor.register("shop")
    document = {"id": "shop", "errors": [{"message": "no shop", "count": 1}], "tables": {"shop": None}}
    assert redactor.redact_all(document, ("id",)) == {
        "id": "shop",
        "errors": [{"message": "no ***", "count": 1}],
        "tables": {"shop": None},
    }


def test_errors_are_redacted_when_they_are_made() -> None:
    REDACTOR.register("named-by-a-driver")
    error = TableError("login with named-by-a-driver failed", hint="Not named-by-a-driver")
    assert (str(error), error.message, error.hint) == ("login with *** failed", "login with *** failed", "Not ***")


def test_secrets_of_libraries_are_known_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "taken-by-the-sdk")
    monkeypatch.setenv("PGPASSWORD", "test")
    register_environment()
    assert REDACTOR.redact("test_orders with taken-by-the-sdk") == "test_orders with ***"
