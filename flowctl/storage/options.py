"""Object storage credentials: one place in the spec (``storage``) feeds fsspec, deltalake and Hadoop.

Credentials belong to the longest URL prefix that covers a URL, at a path boundary: ``s3://lake`` covers
``s3://lake/x`` and not ``s3://lake2``. A URL that no prefix covers uses the SDK's own environment: all functions then
return nothing but how long a request may take (:mod:`flowctl.spec.bounds`). ``s3`` and ``s3a`` are one scheme here;
Spark (Hadoop) is given ``s3a``, everything else ``s3``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from flowctl.errors import TableError
from flowctl.spec import bounds, urls
from flowctl.spec.secrets import reveal

Storage = Mapping[str, Mapping[str, Any]]


def scheme(url: str) -> str:
    """``s3``, ``memory``, …; ``file`` for plain paths. ``s3a`` and ``s3n`` are ``s3``."""
    name, found, _ = url.partition("://")
    if not found:
        return "file"
    return "s3" if name in ("s3", "s3a", "s3n") else name


def local_path(url: str) -> Path:
    """The path behind a plain path or a ``file://`` URL."""
    return Path(url.removeprefix("file://"))


def path_place(url: str, base_dir: str) -> str:
    """The very place behind a path or URL: symbolic links followed, slashes and ways to write a scheme made one."""
    if scheme(url) == "file":
        path = url.removeprefix("file://")
        return f"file {os.path.realpath(path if path.startswith('/') else f'{base_dir}/{path}')}"
    _, _, path = url.partition("://")
    return f"{scheme(url)} {'/'.join(part for part in path.split('/') if part)}"


def credentials(url: str, storage: Storage) -> Mapping[str, Any]:
    """The options written for the longest prefix that covers ``url``, secrets still as references."""
    wanted = _normal(url)
    covering = [prefix for prefix in storage if (wanted + "/").startswith(_normal(prefix) + "/")]
    return storage[max(covering, key=lambda prefix: len(_normal(prefix)))] if covering else {}


def fsspec_options(url: str, storage: Storage) -> dict[str, Any]:
    """Constructor arguments of the URL's fsspec file system."""
    if scheme(url) != "s3":
        return {}
    given = _revealed(url, storage)
    options: dict[str, Any] = {
        name: given[key]
        for name, key in (("key", "access_key"), ("secret", "secret_key"), ("token", "session_token"))
        if key in given
    }
    client = {
        name: given[key] for name, key in (("region_name", "region"), ("endpoint_url", "endpoint")) if key in given
    }
    if client:
        options["client_kwargs"] = client
    options["config_kwargs"] = {
        "connect_timeout": bounds.STORE_CONNECT,
        "read_timeout": bounds.STORE_SILENCE,
        "retries": {"mode": "standard", "total_max_attempts": bounds.STORE_CLIENT_TRIES},
    }
    if "endpoint" in given:  # stores of one's own seldom have a host name per bucket
        options["config_kwargs"] |= {"s3": {"addressing_style": "path"}}
    return options


def deltalake_options(url: str, storage: Storage) -> dict[str, str]:
    """``storage_options`` of ``deltalake.DeltaTable``; source: the object_store crate's AmazonS3ConfigKey."""
    if scheme(url) != "s3":
        return {}
    given = _revealed(url, storage)
    options = {name: given[key] for key, name in _DELTALAKE_NAMES.items() if key in given}
    if given.get("endpoint", "").startswith("http://"):
        options["AWS_ALLOW_HTTP"] = "true"
    return options


def deltalake_bounds(url: str) -> dict[str, str]:
    """More of them; source: the object_store crate's ClientConfigKey and delta-rs's retry settings."""
    if scheme(url) != "s3":
        return {}
    return {
        "connect_timeout": f"{bounds.STORE_CONNECT}s",
        "timeout": f"{bounds.STORE_REQUEST}s",
        "max_retries": str(bounds.STORE_TRIES - 1),
    }


def hadoop_conf(url: str, storage: Storage) -> dict[str, str]:
    """Spark settings that let executors reach the URL's bucket. S3A keeps credentials per bucket, so two prefixes of
    one bucket cannot have different ones there; source: Hadoop's S3A guide, *Configuring different S3 buckets*."""
    if scheme(url) != "s3":
        return {}
    given = _revealed(url, storage)
    bucket = _normal(url).removeprefix("s3://").partition("/")[0]
    settings = {name: given[key] for key, name in _S3A_NAMES.items() if key in given} | _S3A_BOUNDS
    if "endpoint" in given:
        settings["path.style.access"] = "true"
        settings["connection.ssl.enabled"] = str(given["endpoint"].startswith("https://")).lower()
    if "access_key" in given:
        settings["aws.credentials.provider"] = _PROVIDER["session_token" in given]
    return {f"spark.hadoop.fs.s3a.bucket.{bucket}.{name}": value for name, value in settings.items()}


def spark_url(url: str) -> str:
    """The URL as Spark writes it: ``s3a://…`` for S3, ``file:///…`` for local paths."""
    match scheme(url):
        case "s3":
            return "s3a://" + url.partition("://")[2]
        case "file":
            return f"file://{local_path(url).absolute()}"  # Hadoop does not decode what a URI would encode
        case _:
            return url


_DELTALAKE_NAMES = {
    "access_key": "AWS_ACCESS_KEY_ID",
    "secret_key": "AWS_SECRET_ACCESS_KEY",
    "session_token": "AWS_SESSION_TOKEN",
    "region": "AWS_REGION",
    "endpoint": "AWS_ENDPOINT_URL",
}
_S3A_NAMES = {
    "access_key": "access.key",
    "secret_key": "secret.key",
    "session_token": "session.token",
    "region": "endpoint.region",
    "endpoint": "endpoint",
}
_S3A_BOUNDS = {
    "connection.establish.timeout": f"{bounds.STORE_CONNECT}s",
    "connection.timeout": f"{bounds.STORE_SILENCE}s",
    "attempts.maximum": str(bounds.STORE_TRIES),
    "retry.limit": str(bounds.STORE_TRIES),
}
_PROVIDER = {
    False: "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    True: "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider",
}


def _revealed(url: str, storage: Storage) -> dict[str, str]:
    given = {key: str(reveal(value)) for key, value in credentials(url, storage).items()}
    if "endpoint" in given and (flaw := urls.flaw_of_endpoint(given["endpoint"])):
        raise TableError(
            f"the endpoint of the storage for {scheme(url)}:// cannot be read: {flaw}",
            hint="Write https://host:port in `storage`, or where its secret is kept",
        )
    return given


def _normal(url: str) -> str:
    if scheme(url) == "file":
        return local_path(url).as_posix().rstrip("/")
    return f"{scheme(url)}://{url.partition('://')[2].rstrip('/')}"
