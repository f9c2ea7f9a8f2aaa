"""URLs of servers, as far as they can be checked without connecting."""

from __future__ import annotations

from collections.abc import Callable

from flowctl.spec import urls
from flowctl.spec.findings import Findings
from flowctl.spec.node import Node
from flowctl.spec.secrets import is_one_reference, without_references


def check_url(node: Node, label: str, flaw_of: Callable[[str], str], hint: str, findings: Findings) -> None:
    """A URL with a user, a host and a port, apart from secret references. It is parsed on use, by libraries that repeat
    in their errors what they cannot parse."""
    if not isinstance(node.value, str) or is_one_reference(node.value):
        return
    if flaw := flaw_of(without_references(node.value, urls.PLACEHOLDER)):
        findings.error(node, f"`{label}` cannot be read: {flaw}", hint, "bad-url")
