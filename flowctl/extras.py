"""Packages that only some flows need: whether they are there, and what to install where they are not."""

from __future__ import annotations

import importlib.util
import re

#: Import name to what pip installs.
_PACKAGES = {
    "psycopg": "flowctl[postgres]",
    "psycopg_binary": "flowctl[postgres]",
    "deltalake": "flowctl[delta]",
    "delta": "flowctl[delta]",
    "pyroaring": "flowctl[delta]",
    "s3fs": "flowctl[s3]",
    "aiobotocore": "flowctl[s3]",
    "botocore": "flowctl[s3]",
    "pysail": "flowctl[sail]",
    "gcsfs": "gcsfs",
    "adlfs": "adlfs",
}
_NO_MODULE = re.compile(r"No module named '([\w.]+)'")
#: fsspec's words for a file system whose package is missing.
_FILE_SYSTEM = re.compile(r"[Ii]nstall (s3fs|gcsfs|adlfs)\b")
#: And for a scheme that only such a package brings.
_UNKNOWN_SCHEME = "Protocol not known: abfss"
#: psycopg's for libpq, which comes with the extra.
_NO_LIBPQ = "no pq wrapper available"


def is_installed(name: str) -> bool:
    """Loads nothing."""
    try:
        return importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def missing_package(text: str) -> str:
    """The package whose absence an error's ``text`` tells of, one of those that a flow may need; else empty."""
    if _NO_LIBPQ in text:
        return "psycopg_binary"
    if _UNKNOWN_SCHEME in text:
        return "adlfs"
    found = _NO_MODULE.search(text) or _FILE_SYSTEM.search(text)
    name = found[1].partition(".")[0] if found else ""
    return name if name in _PACKAGES else ""


def install_hint(name: str) -> str:
    return f'Install it: pip install "{_PACKAGES[name]}"'
