"""Azure Blob Storage and Data Lake Storage, through the blob endpoint of a storage account.

A URL is ``az://container/path``, whose account is a key of ``storage`` or a variable, or in Hadoop's form
``abfss://container@account.dfs.core.windows.net/path``. Spark gets the second form always, everything else the URL as
it is written. What neither ``storage`` nor the URL has is taken from the variables that ``adlfs`` reads, for all
libraries alike; without any credentials, each uses the identity of the environment (service principal, workload
identity, managed identity).
"""

from __future__ import annotations

import base64
import contextlib
import datetime as dt
import logging
import os
from collections.abc import Mapping
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from flowctl.errors import AccessDenied, TableError
from flowctl.redaction import REDACTOR
from flowctl.storage.store import CloudStore, Given

#: Timeouts of a request, in seconds: for connecting, and without receiving a byte.
CONNECT = 10
SILENCE = 30
#: For a whole request of ``deltalake``, including its body, and its attempts.
REQUEST = 60
TRIES = 3
_SUFFIX = "core.windows.net"
#: What each key is called in the environment, in a connection string and by the object_store crate (`deltalake`, Sail);
#: sources: adlfs, *Configure Azure Storage connection strings*, the crate's AzureConfigKey.
_VARIABLES = {
    "connection_string": "AZURE_STORAGE_CONNECTION_STRING",
    "account": "AZURE_STORAGE_ACCOUNT_NAME",
    "account_key": "AZURE_STORAGE_ACCOUNT_KEY",
    "sas_token": "AZURE_STORAGE_SAS_TOKEN",
    "tenant_id": "AZURE_STORAGE_TENANT_ID",
    "client_id": "AZURE_STORAGE_CLIENT_ID",
    "client_secret": "AZURE_STORAGE_CLIENT_SECRET",
}
_IN_CONNECTION_STRING = {
    "AccountName": "account",
    "AccountKey": "account_key",
    "SharedAccessSignature": "sas_token",
    "BlobEndpoint": "endpoint",
}
_DELTALAKE_NAMES = {
    "account": "AZURE_STORAGE_ACCOUNT_NAME",
    "account_key": "AZURE_STORAGE_ACCOUNT_KEY",
    "sas_token": "AZURE_STORAGE_SAS_TOKEN",
    "tenant_id": "AZURE_STORAGE_TENANT_ID",
    "client_id": "AZURE_STORAGE_CLIENT_ID",
    "client_secret": "AZURE_STORAGE_CLIENT_SECRET",
    "endpoint": "AZURE_STORAGE_ENDPOINT",
}
_ADLFS_NAMES = {
    "account": "account_name",
    "account_key": "account_key",
    "sas_token": "sas_token",
    "tenant_id": "tenant_id",
    "client_id": "client_id",
    "client_secret": "client_secret",
}
_SECRETS = ("account_key", "sas_token", "client_secret")
_CREDENTIALS = ("account_key", "sas_token", "client_id", "anonymous")
_OAUTH = "org.apache.hadoop.fs.azurebfs.oauth2."
_FILE_SYSTEM = "flowctl.storage.azure_client.AzureFileSystem"
# Without a handler, Python prints the warnings of each credential that was tried.
for _name in ("azure", "msal"):
    logging.getLogger(_name).addHandler(logging.NullHandler())


class AzureStore(CloudStore):
    schemes: ClassVar = ("abfss", "abfs", "az")
    takes_credentials: ClassVar = True
    bucket: ClassVar = "container"
    jars: ClassVar = ("abfs",)

    def complete(self, url: str, given: Given) -> Given:
        """Adds what the connection string, the URL and the environment have. :class:`TableError` if the URL names
        another account than ``given``, if no account is known, or if a key or token cannot be right."""
        found = dict(given)
        if not any(key in found for key in ("connection_string", *_CREDENTIALS)):
            found = {key: os.environ[name] for key, name in _VARIABLES.items() if os.environ.get(name)} | found
        if text := found.pop("connection_string", ""):
            found = _parts_of(text) | found
        if host := _host(url):
            account, _, rest = host.partition(".")
            if found.get("account", account) != account:
                raise TableError(
                    f"{url} names the account {account}, but the credentials are of {found['account']}",
                    hint="Correct `account` in `storage` (or the environment), or the URL",
                )
            found["account"] = account
            if not rest.endswith(_SUFFIX):
                found.setdefault("endpoint", f"https://{account}.{rest.replace('dfs.', 'blob.', 1)}")
        for key in _SECRETS:
            if key in found:
                REDACTOR.register(found[key])
        if "account" not in found:
            raise TableError(
                f"the storage account of {url} is not known",
                hint="Write `account` in `storage`, or set AZURE_STORAGE_ACCOUNT_NAME",
            )
        _check_secrets(url, found)
        return found

    def fsspec_options(self, given: Given) -> dict[str, Any]:
        """Source: adlfs's AzureBlobFileSystem. It takes an endpoint with a path or without TLS, such as Azurite's, only
        in a connection string."""
        import fsspec

        for scheme in self.schemes:
            fsspec.register_implementation(scheme, _FILE_SYSTEM, clobber=True, errtxt="Please install adlfs")
        options: dict[str, Any] = {"connection_timeout": CONNECT, "read_timeout": SILENCE}
        endpoint = given.get("endpoint", "").rstrip("/")
        if endpoint and not given.keys().isdisjoint(("account_key", "sas_token")):
            return options | {"connection_string": _connection_string(given, endpoint)}
        options |= _renamed(given, _ADLFS_NAMES)
        if endpoint:
            options["account_host"] = endpoint.partition("://")[2]
        if "anonymous" in given:
            options["anon"] = True
        return options

    def blob_options(self, given: Given) -> dict[str, Any]:
        """A hanging renewal of the lease must time out early enough to be sent again within the lease's TTL."""
        return self.fsspec_options(given) | {"connection_timeout": 5, "read_timeout": 10, "max_concurrency": 1}

    def deltalake_options(self, given: Given) -> dict[str, str]:
        options = _renamed(given, _DELTALAKE_NAMES)
        if given.get("endpoint", "").startswith("http://"):
            options["AZURE_ALLOW_HTTP"] = "true"
        if "anonymous" in given:
            options["AZURE_SKIP_SIGNATURE"] = "true"
        return options

    def deltalake_timeouts(self) -> dict[str, str]:
        return {"connect_timeout": f"{CONNECT}s", "timeout": f"{REQUEST}s", "max_retries": str(TRIES - 1)}

    def hadoop_conf(self, bucket: str, given: Given) -> dict[str, str]:
        """ABFS keeps credentials per account; source: Hadoop's guide *Azure Data Lake Storage Gen2*."""
        if "account" not in given:
            return {}
        settings = _abfs_credentials(given)
        host = _abfs_host(given)
        conf = {f"spark.hadoop.fs.azure.{name}.{host}": value for name, value in settings.items()}
        return conf | _abfs_endpoint(given) | _ABFS_TIMEOUTS

    def spark_url(self, url: str, given: Given) -> str:
        """Hadoop reads the account from the URL only."""
        container, _, path = url.partition("://")[2].partition("/")
        if "account" not in given:
            raise TableError(
                f"{url}: Spark needs the name of the storage account",
                hint="Add `account` in `storage`, or write abfss://container@account.dfs.core.windows.net/path",
            )
        scheme = "abfs" if given.get("endpoint", "").startswith("http://") else "abfss"
        return f"{scheme}://{container.partition('@')[0]}@{_abfs_host(given)}/{path}"


def _host(url: str) -> str:
    """``account.dfs.core.windows.net``; empty for a URL that has a container only."""
    return url.partition("://")[2].partition("/")[0].partition("@")[2]


def _abfs_host(given: Given) -> str:
    """Where Hadoop's driver finds the account: the same cloud's endpoint for file systems."""
    host = urlsplit(given.get("endpoint", "")).hostname or ""
    if ".blob." in host:
        return host.replace(".blob.", ".dfs.", 1)
    return f"{given['account']}.dfs.{_SUFFIX}"


def _check_secrets(url: str, given: Given) -> None:
    """Libraries would report these with errors of their own, or as any other refusal."""
    try:
        base64.b64decode(given.get("account_key", ""), validate=True)
    except ValueError as error:
        hint = "Copy it whole from the account's access keys"
        raise TableError(f"the account key of {url} is not base64", hint=hint) from error
    ends = parse_qs(given.get("sas_token", "").lstrip("?")).get("se", [""])[0]
    with contextlib.suppress(ValueError):  # another form of time is left to the server
        if ends and _aware(dt.datetime.fromisoformat(ends)) < dt.datetime.now(dt.UTC):
            what = f"the shared access signature of {url} expired on {ends}"
            raise AccessDenied(what, hint="Create a new one, and put it where its secret is kept")


def _aware(time: dt.datetime) -> dt.datetime:
    return time if time.tzinfo else time.replace(tzinfo=dt.UTC)


def _parts_of(connection_string: str) -> dict[str, str]:
    """The keys of ``storage`` that it stands for. :class:`TableError`, which does not repeat it, if it has none."""
    pairs = [part.partition("=") for part in connection_string.split(";") if part]
    written = {name: value for name, _, value in pairs}
    found = {key: written[name] for name, key in _IN_CONNECTION_STRING.items() if written.get(name)}
    if not found.keys() & {"account", "endpoint"}:
        raise TableError(
            "the connection string of the storage account cannot be read: it has neither AccountName nor BlobEndpoint",
            hint="Copy it whole from the account's access keys",
        )
    if "account" not in found:
        found["account"] = (urlsplit(found["endpoint"]).hostname or "").partition(".")[0]
    suffix = written.get("EndpointSuffix", _SUFFIX)
    if "endpoint" not in found and suffix != _SUFFIX:
        found["endpoint"] = f"https://{found['account']}.blob.{suffix}"
    return found


def _connection_string(given: Given, endpoint: str) -> str:
    names = {key: name for name, key in _IN_CONNECTION_STRING.items() if key != "endpoint"}
    parts = [f"{name}={given[key].lstrip('?')}" for key, name in names.items() if key in given]
    return ";".join([f"BlobEndpoint={endpoint}", *parts])


def _abfs_credentials(given: Given) -> dict[str, str]:
    if "account_key" in given:
        return {"account.key": given["account_key"]}
    if "sas_token" in given:
        return {"account.auth.type": "SAS", "sas.fixed.token": given["sas_token"].lstrip("?")}
    oauth = "account.oauth2"
    if "client_id" in given:
        return {
            "account.auth.type": "OAuth",
            "account.oauth.provider.type": f"{_OAUTH}ClientCredsTokenProvider",
            f"{oauth}.client.endpoint": f"https://login.microsoftonline.com/{given.get('tenant_id', '')}/oauth2/token",
            f"{oauth}.client.id": given["client_id"],
            f"{oauth}.client.secret": given.get("client_secret", ""),
        }
    if token_file := os.environ.get("AZURE_FEDERATED_TOKEN_FILE"):
        return {
            "account.auth.type": "OAuth",
            "account.oauth.provider.type": f"{_OAUTH}WorkloadIdentityTokenProvider",
            f"{oauth}.msi.tenant": os.environ.get("AZURE_TENANT_ID", ""),
            f"{oauth}.client.id": os.environ.get("AZURE_CLIENT_ID", ""),
            f"{oauth}.token.file": token_file,
        }
    return {"account.auth.type": "OAuth", "account.oauth.provider.type": f"{_OAUTH}MsiTokenProvider"}


def _abfs_endpoint(given: Given) -> dict[str, str]:
    """For a server that is not at the account's own host name, such as Azurite: it has no endpoint for file systems
    (``dfs``), so the driver uses that for blobs."""
    address = urlsplit(given.get("endpoint", ""))
    if not address.hostname or ".blob." in address.hostname:
        return {}
    return {
        "spark.hadoop.fs.azure.abfs.endpoint": address.netloc,
        "spark.hadoop.fs.azure.fns.account.service.type": "BLOB",
        "spark.hadoop.fs.azure.account.hns.enabled": "false",
        "spark.hadoop.fs.azure.always.use.https": str(address.scheme == "https").lower(),
    }


_ABFS_TIMEOUTS = {
    "spark.hadoop.fs.azure.http.connection.timeout": f"{CONNECT * 1000}",
    "spark.hadoop.fs.azure.http.read.timeout": f"{SILENCE * 1000}",
    "spark.hadoop.fs.azure.io.retry.max.retries": str(TRIES),
}


def _renamed(given: Given, names: Mapping[str, str]) -> dict[str, str]:
    return {name: given[key] for key, name in names.items() if key in given}


STORE = AzureStore()
