"""URLs of folders and files, as far as they can be checked without asking anybody."""

from __future__ import annotations

from collections.abc import Iterable

from flowctl.spec.findings import Findings
from flowctl.spec.node import Node
from flowctl.spec.secrets import secret_references
from flowctl.spec.storage import scheme
from flowctl.spec.suggest import did_you_mean

#: Schemes whose URLs begin with a bucket (or container), in the order they are named to people.
_BUCKETS = ("s3", "gs", "gcs", "abfss", "abfs", "az")
_OTHERS = ("file", "memory")


def check_location(node: Node, label: str, findings: Findings) -> None:
    """``s3://`` alone would be a folder of that name, and an unknown scheme a failure of the first run."""
    url = node.value
    if not isinstance(url, str) or "://" not in url or secret_references(url):
        return
    name = scheme(url)
    if name in _BUCKETS:
        if not url.partition("://")[2].partition("/")[0]:
            hint = f"Write {name}://bucket/path"
            findings.error(node, f"`{label}` names no bucket: {url}", hint, "no-bucket")
    elif name not in _OTHERS and name not in _protocols():
        hint = did_you_mean(name, (*_BUCKETS, *_OTHERS), "There are: ")
        findings.error(node, f"`{label}`: there is no storage `{name}://`", hint, "unknown-storage")


def check_credentials(prefix: str, node: Node, findings: Findings) -> None:
    """Credentials are used for S3 only: anywhere else they would be dropped in silence."""
    name = scheme(prefix)
    if name != "s3" and node.entries:
        environment = _ENVIRONMENTS.get(name, "the SDK's own environment")
        hint = f"Remove them: {environment} is used for {name}" if name != "file" else "Remove them"
        findings.error(node, f"`storage.{prefix}`: credentials are for s3:// only", hint, "unused-credentials")


_ENVIRONMENTS = {
    **dict.fromkeys(("gs", "gcs"), "GOOGLE_APPLICATION_CREDENTIALS"),
    **dict.fromkeys(("az", "abfs", "abfss"), "AZURE_STORAGE_ACCOUNT_NAME and what else adlfs reads"),
}


def _protocols() -> Iterable[str]:
    """All that fsspec knows; imported only for one that is not usual."""
    from fsspec.registry import known_implementations

    return tuple(known_implementations)
