"""Packages that only some flows need: whether they are installed, and how to install them."""

from __future__ import annotations

import importlib.util
import re

#: Import name to the pip requirement.
_PACKAGES = {
    "psycopg": "flowctl[postgres]",
    "psycopg_binary": "flowctl[postgres]",
    "deltalake": "flowctl[delta]",
    "delta": "flowctl[delta]",
    "pyroaring": "flowctl[delta]",
    "duckdb": "flowctl[duckdb]",
    "pyiceberg": "flowctl[iceberg]",
    "sqlalchemy": "flowctl[iceberg]",
    "thrift": "pyiceberg[hive]",
    "pymysql": "flowctl[mysql]",
    "s3fs": "flowctl[s3]",
    "aiobotocore": "flowctl[s3]",
    "botocore": "flowctl[s3]",
    "pysail": "flowctl[sail]",
    "confluent_kafka": "flowctl[kafka]",
    "fastavro": "flowctl[files]",
    "httpx2": "flowctl[kafka]",
    "msgspec": "flowctl[kafka]",
    "grpc_tools": "flowctl[protobuf]",
    "aws_msk_iam_sasl_signer": "flowctl[msk]",
    "hvac": "flowctl[vault]",
    "boto3": "flowctl[aws-secrets]",
    "google.cloud.secretmanager": "flowctl[gcp-secrets]",
    "azure.keyvault.secrets": "flowctl[azure-secrets]",
    "azure.identity": "flowctl[azure-secrets]",
    "gcsfs": "flowctl[gcs]",
    "adlfs": "flowctl[azure]",
}
_NO_MODULE = re.compile(r"No module named '([\w.]+)'")
#: fsspec's message for a file system whose package is missing.
_FILE_SYSTEM = re.compile(r"[Ii]nstall (s3fs|gcsfs|adlfs)\b")
#: fsspec's message for a scheme that only such a package supports.
_UNKNOWN_SCHEME = "Protocol not known: abfss"
#: psycopg's message for a missing libpq, which comes with the extra.
_NO_LIBPQ = "no pq wrapper available"


def is_installed(name: str) -> bool:
    """Whether the package exists; does not import it."""
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def missing_package(text: str) -> str:
    """The package that is missing according to an error's ``text``; empty if it names none that a flow may need."""
    if _NO_LIBPQ in text:
        return "psycopg_binary"
    if _UNKNOWN_SCHEME in text:
        return "adlfs"
    found = _NO_MODULE.search(text) or _FILE_SYSTEM.search(text)
    name = found[1].partition(".")[0] if found else ""
    return name if name in _PACKAGES else ""


def install_hint(name: str) -> str:
    return f'Install it: pip install "{_PACKAGES[name]}"'
