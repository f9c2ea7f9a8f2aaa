"""Secret references: parsed when loaded, revealed on use, hidden everywhere after."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest

from flowctl.diagnostics import Mark
from flowctl.errors import TableError
from flowctl.redaction import REDACTOR
from flowctl.spec.secret_text import SecretRef, SecretText
from flowctl.spec.secrets import parse_secrets, password_in_clear, reveal

PASSWORD = "p@ss/w:rd% ü"


def test_parsing() -> None:
    assert parse_secrets("plain $${x}") == "plain ${x}"
    assert parse_secrets("${secret:env:A}") == SecretText((SecretRef("env", "A"),))
    assert parse_secrets("u:${secret:env:A}@${secret:file:/run/b}x") == SecretText(
        ("u:", SecretRef("env", "A"), "@", SecretRef("file", "/run/b"), "x")
    )
    assert parse_secrets("${table}") == "${table}"
    arn = "arn:aws:secretsmanager:eu-west-1:123456789012:secret:shop-AbCdEf"
    assert parse_secrets(f"${{secret:aws:{arn}#user}}") == SecretText((SecretRef("aws", f"{arn}#user"),))


def test_the_text_shows_references_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A", PASSWORD)
    text = parse_secrets("postgresql://u:${secret:env:A}@h/d")
    assert str(text) == "postgresql://u:${secret:env:A}@h/d"
    assert PASSWORD not in repr(text)


def test_values_are_encoded_inside_urls_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("A", PASSWORD)
    (tmp_path / "b").write_text("of the file b\n", encoding="utf-8")
    options = {
        "url": parse_secrets("postgresql://u:${secret:env:A}@h/d"),
        "password": parse_secrets("${secret:env:A}"),
        "nested": {"key": parse_secrets(f"${{secret:file:{tmp_path / 'b'}}}")},
        "port": 5432,
    }
    assert reveal(options) == {
        "url": f"postgresql://u:{quote(PASSWORD, safe='')}@h/d",
        "password": PASSWORD,
        "nested": {"key": "of the file b"},
        "port": 5432,
    }


@pytest.mark.parametrize("reference", ["${secret:env:NOT_THERE}", "${secret:file:not/there}"])
def test_a_missing_secret_is_an_error_with_its_name(reference: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOT_THERE", raising=False)
    with pytest.raises(TableError, match=r"NOT_THERE|not/there") as raised:
        reveal(parse_secrets(reference, Mark("flow.yaml", 3)))
    assert raised.value.mark == Mark("flow.yaml", 3)


def test_what_is_revealed_is_redacted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A", "revealed-here")
    reveal(parse_secrets("${secret:env:A}"))
    assert REDACTOR.redact("it was revealed-here.") == "it was ***."


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
        ("http://host:9000/a@b", False),
        ("postgresql://etl:part/x@h/d", True),
        ("postgresql://etl:part?x@h/d", True),
        ("plain text: no url @ all", False),
    ],
)
def test_passwords_in_urls(text: str, in_clear: bool) -> None:
    assert password_in_clear(text) is in_clear


@pytest.mark.parametrize("provider", ["env", "file"])
def test_an_empty_secret_is_named_before_it_is_used(
    provider: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("A", "")
    (tmp_path / "b").write_text("\n", encoding="utf-8")
    name, what = {
        "env": ("A", "environment variable A"),
        "file": (str(tmp_path / "b"), f"secret file {tmp_path / 'b'}"),
    }[provider]
    with pytest.raises(TableError, match=f"^the {what} that a secret refers to is empty$"):
        reveal(parse_secrets(f"postgresql://u:${{secret:{provider}:{name}}}@h/d"))
