"""S3 and compatible stores. Spark (Hadoop) gets ``s3a`` URLs, everything else ``s3``.

Each client retries by itself, so a timeout here applies to one request: a store that accepts requests and never
responds is abandoned after about five minutes.
"""

from __future__ import annotations

from typing import Any, ClassVar

from flowctl.storage.store import CloudStore, Given

#: Timeout for connecting, including TLS. All timeouts are in seconds.
CONNECT = 10
#: Timeout without receiving a byte.
SILENCE = 30
#: Timeout for a whole request of ``deltalake``, including its body: parts of files, a few megabytes each.
REQUEST = 60
#: Attempts of ``deltalake`` and of Hadoop.
TRIES = 3
#: Attempts of botocore within each of the five attempts of s3fs.
CLIENT_TRIES = 2


class S3(CloudStore):
    schemes: ClassVar = ("s3", "s3a", "s3n")
    takes_credentials: ClassVar = True
    jars: ClassVar = ("s3a",)

    def fsspec_options(self, given: Given) -> dict[str, Any]:
        options: dict[str, Any] = _renamed(given, _S3FS_NAMES)
        if client := _renamed(given, _BOTOCORE_NAMES):
            options["client_kwargs"] = client
        options["config_kwargs"] = {
            "connect_timeout": CONNECT,
            "read_timeout": SILENCE,
            "retries": {"mode": "standard", "total_max_attempts": CLIENT_TRIES},
        }
        if "endpoint" in given:  # self-hosted stores seldom have a host name per bucket
            options["config_kwargs"] |= {"s3": {"addressing_style": "path"}}
        return options

    def blob_options(self, given: Given) -> dict[str, Any]:
        """A hanging renewal of the lease must time out early enough to be sent again within the lease's TTL. Documents
        are small: with ``max_concurrency`` 1, s3fs reads each in one request, without requesting its size first."""
        options = self.fsspec_options(given)
        options["config_kwargs"] |= {"connect_timeout": 5, "read_timeout": 10}
        return options | {"max_concurrency": 1}

    def deltalake_options(self, given: Given) -> dict[str, str]:
        """Source: the object_store crate's AmazonS3ConfigKey."""
        options = _renamed(given, _DELTALAKE_NAMES)
        if given.get("endpoint", "").startswith("http://"):
            options["AWS_ALLOW_HTTP"] = "true"
        return options

    def deltalake_timeouts(self) -> dict[str, str]:
        """Source: the object_store crate's ClientConfigKey and delta-rs's retry settings."""
        return {
            "connect_timeout": f"{CONNECT}s",
            "timeout": f"{REQUEST}s",
            "max_retries": str(TRIES - 1),
        }

    def hadoop_conf(self, bucket: str, given: Given) -> dict[str, str]:
        """S3A keeps credentials per bucket, so two prefixes of one bucket cannot have different ones in Spark; source:
        Hadoop's S3A guide, *Configuring different S3 buckets*."""
        settings = _renamed(given, _S3A_NAMES) | _S3A_TIMEOUTS
        if "endpoint" in given:
            settings["path.style.access"] = "true"
            settings["connection.ssl.enabled"] = str(given["endpoint"].startswith("https://")).lower()
        if "access_key" in given:
            settings["aws.credentials.provider"] = _PROVIDER["session_token" in given]
        return {f"spark.hadoop.fs.s3a.bucket.{bucket}.{name}": value for name, value in settings.items()}

    def spark_url(self, url: str, given: Given) -> str:
        return "s3a://" + url.partition("://")[2]


_S3FS_NAMES = {"access_key": "key", "secret_key": "secret", "session_token": "token"}
_BOTOCORE_NAMES = {"region": "region_name", "endpoint": "endpoint_url"}
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
_S3A_TIMEOUTS = {
    "connection.establish.timeout": f"{CONNECT}s",
    "connection.timeout": f"{SILENCE}s",
    "attempts.maximum": str(TRIES),
    "retry.limit": str(TRIES),
}
_PROVIDER = {
    False: "org.apache.hadoop.fs.s3a.SimpleAWSCredentialsProvider",
    True: "org.apache.hadoop.fs.s3a.TemporaryAWSCredentialsProvider",
}


def _renamed(given: Given, names: dict[str, str]) -> dict[str, str]:
    return {name: given[key] for key, name in names.items() if key in given}


STORE = S3()
