"""Google Cloud Storage.

Without credentials in ``storage``, each library uses the application default credentials: the file that
``GOOGLE_APPLICATION_CREDENTIALS`` names (a service account's, or of workload identity federation), the login of
``gcloud``, or the service account of the machine or pod.
"""

from __future__ import annotations

import json
import logging
from typing import Any, ClassVar

from flowctl.errors import TableError
from flowctl.redaction import REDACTOR
from flowctl.storage.store import CloudStore, Given

#: Timeouts of a request, in seconds: for connecting, without receiving a byte, and for all of a request of
#: ``deltalake``; its attempts.
CONNECT = 10
SILENCE = 30
REQUEST = 60
TRIES = 3
# Without a handler, Python prints gcsfs's log of each error that is raised.
logging.getLogger("gcsfs").addHandler(logging.NullHandler())
_AUTH = "spark.hadoop.fs.gs.auth."
_FILE_SYSTEM = "flowctl.storage.gcs_client.GoogleFileSystem"


class GoogleStore(CloudStore):
    schemes: ClassVar = ("gs", "gcs")
    takes_credentials: ClassVar = True
    jars: ClassVar = ("gcs",)
    has_one_set_on_spark: ClassVar = True
    not_on_spark: ClassVar = {
        "service_account_key": "Write service_account_file: Hadoop reads the key from a file on each host"
    }

    def complete(self, url: str, given: Given) -> Given:
        if key := given.get("service_account_key"):
            for secret in (text for name, text in _parsed(key).items() if name.startswith("private_key")):
                REDACTOR.register(str(secret))
        return given

    def fsspec_options(self, given: Given) -> dict[str, Any]:
        """Source: gcsfs's GCSFileSystem. Its default is a class that asks for each bucket's type by gRPC, for a minute
        if the endpoint does not speak it: this process uses another, executors ask for a moment only."""
        import fsspec

        for scheme in self.schemes:
            fsspec.register_implementation(scheme, _FILE_SYSTEM, clobber=True, errtxt="Please install gcsfs")
        options: dict[str, Any] = {"token": _token(given), "connect": CONNECT, "silence": SILENCE}
        if "endpoint" in given:
            options |= {"endpoint_url": given["endpoint"].rstrip("/"), "retry_timeout": 0.1}
        return options

    def blob_options(self, given: Given) -> dict[str, Any]:
        """A hanging renewal of the lease must time out early enough to be sent again within the lease's TTL."""
        return self.fsspec_options(given) | {"connect": 5, "silence": 10}

    def deltalake_options(self, given: Given) -> dict[str, str]:
        """Source: the object_store crate's GoogleConfigKey and ServiceAccountCredentials. Only a service account's key
        names another server, or turns signatures off (version 0.13 asks for a token despite `skip_signature`)."""
        own = {"gcs_base_url": given["endpoint"].rstrip("/")} if "endpoint" in given else {}
        options = {"GOOGLE_ALLOW_HTTP": "true"} if given.get("endpoint", "").startswith("http://") else {}
        if "anonymous" in given:
            nobody = dict.fromkeys(("client_email", "private_key", "private_key_id"), "")
            return options | {"GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps({**nobody, "disable_oauth": True, **own})}
        if "service_account_key" in given:
            key = _parsed(given["service_account_key"])
            return options | {"GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps({**key, **own})}
        if "service_account_file" in given:
            options["GOOGLE_SERVICE_ACCOUNT"] = given["service_account_file"]
        return options

    def deltalake_timeouts(self) -> dict[str, str]:
        return {"connect_timeout": f"{CONNECT}s", "timeout": f"{REQUEST}s", "max_retries": str(TRIES - 1)}

    def hadoop_conf(self, bucket: str, given: Given) -> dict[str, str]:
        """The connector has one set of credentials for all buckets; source: its CONFIGURATION.md."""
        conf = {
            "spark.hadoop.fs.gs.impl": "com.google.cloud.hadoop.fs.gcs.GoogleHadoopFileSystem",
            "spark.hadoop.fs.gs.http.connect-timeout": f"{CONNECT}s",
        }
        if "service_account_file" in given:
            conf[f"{_AUTH}type"] = "SERVICE_ACCOUNT_JSON_KEYFILE"
            conf[f"{_AUTH}service.account.json.keyfile"] = given["service_account_file"]
        elif "anonymous" in given:
            conf[f"{_AUTH}type"] = "UNAUTHENTICATED"
        else:
            conf[f"{_AUTH}type"] = "APPLICATION_DEFAULT"
        if "endpoint" in given:
            conf["spark.hadoop.fs.gs.storage.root.url"] = given["endpoint"].rstrip("/") + "/"
            # Others that have the API seldom have Google's newest operation: a rename is a copy and a delete there.
            conf["spark.hadoop.fs.gs.operation.move.enable"] = "false"
        return conf

    def spark_url(self, url: str, given: Given) -> str:
        return "gs://" + url.partition("://")[2]


def _token(given: Given) -> Any:
    if key := given.get("service_account_key"):
        return _parsed(key)
    if "anonymous" in given:
        return "anon"
    return given.get("service_account_file", "google_default")


def _parsed(key: str) -> dict[str, Any]:
    """A service account's key. :class:`TableError`, which does not repeat it, if it is not JSON."""
    try:
        found = json.loads(key)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise TableError(
            "the service account's key for gs:// is not JSON",
            hint="Put the whole key file into the secret, or write its path in `service_account_file`",
        )
    return found


STORE = GoogleStore()
