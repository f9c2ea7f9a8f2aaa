"""Regions, ARNs, stages, binary secrets and credentials of AWS Secrets Manager, against moto."""

from __future__ import annotations

import pytest

from flowctl.errors import AccessDenied, TableError
from tests.spec.secret_stores.places import Aws, Place, fail_to_read, read

pytestmark = [
    pytest.mark.server,
    pytest.mark.usefixtures("aws"),
    pytest.mark.parametrize("opened", ["aws"], indirect=True),
]


@pytest.fixture
def aws(place: Place) -> Aws:
    assert isinstance(place, Aws)
    return place


def test_an_arn_says_the_region(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    aws.put("shop/pg", "s3cret-value")
    arn = aws.client("secretsmanager").describe_secret(SecretId="shop/pg")["ARN"]
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    error = fail_to_read("aws:shop/pg")
    assert "in us-east-1 has no secret shop/pg" in error.message and "AWS_DEFAULT_REGION" in error.hint
    assert read(f"aws:{arn}") == "s3cret-value"
    assert "in eu-west-1 has no secret" in fail_to_read(f"aws:{arn[:-4]}none").message


def test_no_region(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AWS_DEFAULT_REGION")
    error = fail_to_read("aws:shop/pg")
    assert type(error) is TableError and error.message == "AWS Secrets Manager needs a region"


def test_a_stage_is_a_version(aws: Aws) -> None:
    aws.put("rotated", "s3cret-before", "s3cret-after")
    assert read("aws:rotated?version=AWSPREVIOUS") == "s3cret-before"
    assert read("aws:rotated?version=AWSCURRENT") == "s3cret-after"


def test_binary_secrets_are_text_or_refused(aws: Aws) -> None:
    client = aws.client("secretsmanager")
    client.create_secret(Name="text", SecretBinary="sécret-value".encode())
    client.create_secret(Name="bytes", SecretBinary=b"\xff\xfesecret")
    assert read("aws:text") == "sécret-value"
    assert fail_to_read("aws:bytes").message == "the secret bytes is not UTF-8 text"


@pytest.mark.parametrize("text", ["s3cret-value", '["s3cret-value"]', '"s3cret-value"', "[" * 50_000])
def test_a_field_of_what_has_none(aws: Aws, text: str) -> None:
    name = f"plain-{len(text)}"
    aws.put(name, text)
    error = fail_to_read(f"aws:{name}#password", "s3cret-value")
    assert "is not a JSON object" in error.message and "#password" in error.hint


def test_a_field_that_is_empty_or_no_text(aws: Aws) -> None:
    aws.put("odd", '{"none": null, "empty": "", "flag": true, "many": ["é", 1]}')
    assert "has no field none" in fail_to_read("aws:odd#none").message
    assert [read(f"aws:odd#{name}") for name in ("empty", "flag", "many")] == ["", "true", '["é", 1]']


def test_credentials_that_nobody_knows(aws: Aws, monkeypatch: pytest.MonkeyPatch) -> None:
    with aws.refusing():
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAUNKNOWN")
        assert type(fail_to_read("aws:shop/pg")) is AccessDenied


def test_no_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    error = fail_to_read("aws:shop/pg")
    assert type(error) is AccessDenied and "there are no credentials" in error.message


def test_a_secret_that_is_marked_for_deletion(aws: Aws) -> None:
    aws.put("deleted", "s3cret-value")
    aws.client("secretsmanager").delete_secret(SecretId="deleted", RecoveryWindowInDays=7)
    assert "marked for deletion" in fail_to_read("aws:deleted").message


def test_a_profile_that_does_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    error = fail_to_read("aws:shop/pg")
    assert type(error) is AccessDenied and "are incomplete" in error.message
