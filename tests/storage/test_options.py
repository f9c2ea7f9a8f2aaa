"""Credentials by URL prefix, as fsspec, deltalake and Hadoop want them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from flowctl.spec.secret_text import SecretRef, SecretText
from flowctl.storage.options import Storage, credentials, deltalake_options, fsspec_options, hadoop_conf, spark_url

Options = Callable[[str, Storage], Mapping[str, Any]]

LAKE = {
    "region": "eu-west-1",
    "endpoint": "http://127.0.0.1:9000",
    "access_key": SecretText((SecretRef("env", "LAKE_KEY"),)),
    "secret_key": SecretText((SecretRef("env", "LAKE_SECRET"),)),
}
PATIENCE = {
    "connect_timeout": 10,
    "read_timeout": 30,
    "retries": {"mode": "standard", "total_max_attempts": 2},
}
STORAGE = {"s3://lake": LAKE, "s3://lake/eu": {"region": "eu-central-1"}, "s3://other": {"region": "us-east-1"}}


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAKE_KEY", "key")
    monkeypatch.setenv("LAKE_SECRET", "s3cr3t")


@pytest.mark.parametrize(
    ("url", "region"),
    [
        ("s3://lake", "eu-west-1"),
        ("s3://lake/", "eu-west-1"),
        ("s3a://lake/sales", "eu-west-1"),
        ("s3://lake/eu", "eu-central-1"),
        ("s3://lake/eu/x", "eu-central-1"),
        ("s3://lake/europe", "eu-west-1"),
        ("s3://lake2/x", None),
        ("/lake", None),
    ],
)
def test_the_longest_prefix_counts_at_path_borders(url: str, region: str | None) -> None:
    assert credentials(url, STORAGE).get("region") == region


def test_fsspec_options() -> None:
    assert fsspec_options("s3://lake/x", STORAGE) == {
        "key": "key",
        "secret": "s3cr3t",
        "client_kwargs": {"region_name": "eu-west-1", "endpoint_url": "http://127.0.0.1:9000"},
        "config_kwargs": {**PATIENCE, "s3": {"addressing_style": "path"}},
    }


def test_deltalake_options() -> None:
    assert deltalake_options("s3://lake/x", STORAGE) == {
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "s3cr3t",
        "AWS_REGION": "eu-west-1",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9000",
        "AWS_ALLOW_HTTP": "true",
    }


def test_hadoop_conf_is_of_the_bucket() -> None:
    bucket = "spark.hadoop.fs.s3a.bucket.lake."
    assert hadoop_conf("s3://lake/x", STORAGE) == {
        f"{bucket}access.key": "key",
        f"{bucket}secret.key": "s3cr3t",
        f"{bucket}endpoint.region": "eu-west-1",
        f"{bucket}endpoint": "http://127.0.0.1:9000",
        f"{bucket}path.style.access": "true",
        f"{bucket}connection.ssl.enabled": "false",
        f"{bucket}aws.credentials.provider": "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
        **hadoop_patience(bucket),
    }


def hadoop_patience(bucket: str) -> dict[str, str]:
    return {
        f"{bucket}connection.establish.timeout": "10s",
        f"{bucket}connection.timeout": "30s",
        f"{bucket}attempts.maximum": "3",
        f"{bucket}retry.limit": "3",
    }


@pytest.mark.parametrize("options", [fsspec_options, deltalake_options, hadoop_conf])
@pytest.mark.parametrize("url", ["/tmp/lake", "memory://lake"])
def test_other_places_than_s3_have_no_options(options: Options, url: str) -> None:
    assert options(url, STORAGE) == {}


def test_what_no_prefix_covers_is_left_to_the_environment_but_for_its_patience() -> None:
    assert fsspec_options("s3://elsewhere/x", STORAGE) == {"config_kwargs": PATIENCE}
    assert deltalake_options("s3://elsewhere/x", STORAGE) == {}
    bucket = "spark.hadoop.fs.s3a.bucket.elsewhere."
    assert hadoop_conf("s3://elsewhere/x", STORAGE) == hadoop_patience(bucket)


def test_temporary_keys_need_hadoops_provider_for_them() -> None:
    keys = {"s3://lake": {"access_key": "a", "secret_key": "b", "session_token": "c"}}
    conf = hadoop_conf("s3://lake", keys)
    assert conf["spark.hadoop.fs.s3a.bucket.lake.session.token"] == "c"
    assert conf["spark.hadoop.fs.s3a.bucket.lake.aws.credentials.provider"].endswith("TemporaryAWSCredentialsProvider")
    assert fsspec_options("s3://lake", keys)["token"] == "c"


@pytest.mark.parametrize(
    ("url", "spark"),
    [
        ("s3://lake/x", "s3a://lake/x"),
        ("s3a://lake/x", "s3a://lake/x"),
        ("/data/lake", "file:///data/lake"),
        ("file:///data/a b", "file:///data/a b"),
    ],
)
def test_urls_as_spark_writes_them(url: str, spark: str) -> None:
    assert spark_url(url, {}) == spark
