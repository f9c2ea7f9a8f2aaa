"""URLs of servers, as far as they can be checked without asking anybody."""

from __future__ import annotations

from collections.abc import Callable

from flowctl.spec import urls
from flowctl.spec.findings import Findings
from flowctl.spec.node import Node
from flowctl.spec.secrets import is_one_reference, without_references


def check_url(node: Node, label: str, flaw_of: Callable[[str], str], hint: str, findings: Findings) -> None:
    """A URL with a user, a host and a port, secret references apart: it is taken apart when it is used, by libraries
    that repeat what they cannot read."""
    if not isinstance(node.value, str) or is_one_reference(node.value):
        return
    if flaw := flaw_of(without_references(node.value, urls.PLACEHOLDER)):
        findings.error(node, f"`{label}` cannot be read: {flaw}", hint, "bad-url")
