"""URLs of folders and files, as far as they can be checked without asking anybody."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from flowctl.spec import urls
from flowctl.spec.findings import Findings
from flowctl.spec.node import Node
from flowctl.spec.secrets import is_one_reference, secret_references, without_references
from flowctl.spec.suggest import did_you_mean
from flowctl.storage.options import scheme

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
            findings.error(node, f"`{label}` names no bucket", hint, "no-bucket")
    elif name not in _OTHERS and name not in _protocols():
        hint = did_you_mean(name, (*_BUCKETS, *_OTHERS), "There are: ")
        findings.error(node, f"`{label}`: there is no storage `{name}://`", hint, "unknown-storage")


def check_url(node: Node, label: str, flaw_of: Callable[[str], str], hint: str, findings: Findings) -> None:
    """A URL with a user, a host and a port, secret references apart: it is taken apart when it is used, by libraries
    that repeat what they cannot read."""
    if not isinstance(node.value, str) or is_one_reference(node.value):
        return
    if flaw := flaw_of(without_references(node.value, urls.PLACEHOLDER)):
        findings.error(node, f"`{label}` cannot be read: {flaw}", hint, "bad-url")


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
