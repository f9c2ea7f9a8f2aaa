"""Checks connections and storage against their schemas, and that no secret is in plain text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from flowctl.redaction import without_passwords
from flowctl.spec import urls
from flowctl.spec.findings import Findings
from flowctl.spec.given import hide_values
from flowctl.spec.messages import LATER_HINT
from flowctl.spec.node import Node, leaves
from flowctl.spec.references import ConnectionTypes
from flowctl.spec.schema import Schema, check, connector_schema, connector_types, later_types, storage_schema
from flowctl.spec.secret_text import SecretRef
from flowctl.spec.secrets import (
    PROVIDERS,
    flaw_of_reference,
    has_stray_opening,
    is_one_reference,
    names_a_secret,
    password_in_clear,
    secret_references,
    without_references,
)
from flowctl.spec.suggest import did_you_mean

#: Settings whose values are secrets, not the location of one.
_SECRET_SETTING = re.compile(
    r"(?i)(secret[._-]?key|password|access[._-]?key|session[._-]?token|[._-]secret|account\.key\.[\w.]+)$"
)
_VARIABLE = "{{ vars.NAME }} for a variable of the spec"
#: What a value can have instead of a `${` that begins no reference, and where.
_FORMS = {
    "${secret:env:NAME} for an environment variable": ("connections", "storage"),
    _VARIABLE: ("connections", "storage", "state", "spark.url"),
    "$${ for the characters themselves": ("connections", "storage", "state"),
}


def check_connections(root: Node, findings: Findings) -> ConnectionTypes:
    """Name to type, None for a connection with an unknown type."""
    written = root.get("connections")
    entries = written.entries if written else {}
    types = {name: _type(node, findings) for name, node in entries.items()}
    _check_openings(root, findings)
    findings.next_pass()
    for name, node in entries.items():
        type = types[name]
        if type:
            errors = check(node, type, f"connections.{name}")
            findings.extend(errors if node.mark.is_in_file else hide_values(errors, node))
            _check_secrets(node, connector_schema(type), f"connections.{name}", findings)
            if url := node.get("url"):
                hint = connector_schema(type)["properties"].get("url", {}).get("x-expected", "")
                _check_url(url, f"connections.{name}.url", urls.flaw, hint, findings)
    stores = root.get("storage")
    for prefix, node in stores.entries.items() if stores else ():
        _check_secrets(node, storage_schema(prefix), f"storage.{prefix}", findings)
        if endpoint := node.get("endpoint"):
            label, hint = f"storage.{prefix}.endpoint", "Write https://host:port"
            _check_url(endpoint, label, urls.flaw_of_endpoint, hint, findings)
    if url := root.get("spark.url"):
        _check_url(url, "spark.url", urls.flaw_of_spark, "Write sc://host:port or spark://host:port", findings)
    if conf := root.get("spark.conf"):
        _check_settings(conf, findings)
    for key in ("state", "spark", "vars"):
        if found := root.get(key):
            _check_no_secrets(found, key, findings)
    return types


def _check_openings(root: Node, findings: Findings) -> None:
    """Each ``${`` begins a secret reference where there may be one: nothing else is filled in outside of tables, so a
    shell's ``${NAME}``, or a reference without its end, would become a part of the path or name. What is masked in a
    given connection may be any text."""
    for key in ("connections", "storage", "state", "spark.url"):
        written = root.get(key)
        for path, leaf in _texts(written) if written else ():
            if has_stray_opening(leaf.text):
                forms = [form for form, keys in _FORMS.items() if key in keys]
                if not leaf.mark.is_in_file:
                    forms.remove(_VARIABLE)  # given as it is
                hint = f"Write {', '.join(forms[:-1])}{' or ' if forms[1:] else ''}{forms[-1]}"
                label = f"{key}.{path}" if path else key
                findings.error(leaf, f"a ${{ in `{label}` begins no reference", hint, "stray-reference")
    stores = root.get("storage")
    for prefix, node in stores.entries.items() if stores else ():
        if "${" in prefix:
            hint = "Write the prefix out: nothing is filled in there"
            findings.error(node.place, f"a ${{ in `storage.{prefix}` begins no reference", hint, "stray-reference")


def _type(node: Node, findings: Findings) -> str | None:
    written = node.entries.get("type")
    if written is None or not isinstance(written.value, str):
        return None
    type = written.value
    if type in connector_types():
        return type
    if type in later_types():
        what = f"connections of type {type} are not in this version"
        findings.error(written, what, LATER_HINT, "not-in-this-version")
    else:
        hint = did_you_mean(type, connector_types(), "There are: ")
        what = f"there is no connection type `{without_passwords(type)}`"
        findings.error(written, what, hint, "unknown-connection-type")
    return None


def _check_url(node: Node, label: str, flaw_of: Callable[[str], str], hint: str, findings: Findings) -> None:
    """Checks the form of a server's URL, apart from secret references. The libraries that parse it later repeat
    malformed parts in their errors."""
    if not isinstance(node.value, str) or is_one_reference(node.value):
        return
    if flaw := flaw_of(without_references(node.value, urls.PLACEHOLDER)):
        findings.error(node, f"`{label}` cannot be read: {flaw}", hint, "bad-url")


def _check_secrets(node: Node, schema: Schema, label: str, findings: Findings) -> None:
    """A secret property is a reference, a URL contains no password of its own, and every reference has a known
    provider. Secrets that the command line or the environment gives are masked."""
    properties = schema["properties"]
    for path, leaf in _texts(node):
        where = f"{label}.{path}"
        references = secret_references(leaf.text)
        for reference in references:
            _check_reference(reference, leaf, findings)
        if not leaf.mark.is_in_file:
            continue
        if names_a_secret(path, properties) and not references:
            hint = "Write a reference, as in ${secret:env:NAME} or ${secret:file:PATH}"
            findings.error(leaf, f"`{where}` is a secret in plain text", hint, "secret-in-clear")
        elif password_in_clear(leaf.text):
            hint = "Write a reference in its place, as in ${secret:env:NAME}"
            findings.error(leaf, f"the URL in `{where}` has a password in plain text", hint, "secret-in-clear")


def _check_settings(conf: Node, findings: Findings) -> None:
    """Spark receives its settings on a command line, which every user of the machine can read."""
    for name, leaf in _texts(conf):
        if _SECRET_SETTING.search(name) and leaf.text:
            hint = "Put a store's credentials into `storage`, others into the environment or the cluster's own settings"
            findings.error(leaf, f"`spark.conf.{name}` is a secret in plain text", hint, "secret-in-clear")


def _check_reference(reference: SecretRef, leaf: Node, findings: Findings) -> None:
    if not reference.name:
        findings.error(leaf, "a secret reference has no name", "Write ${secret:env:NAME}", "secret-reference")
    elif reference.provider not in PROVIDERS:
        hint = did_you_mean(reference.provider, PROVIDERS, "There are: ")
        findings.error(leaf, f"there is no secret provider `{reference.provider}`", hint, "unknown-secret-provider")
    elif example := flaw_of_reference(reference):
        what = f"`{reference.name}` is not the name of a secret in {reference.provider}"
        findings.error(leaf, what, f"Write {example}, with or without a field", "secret-reference")


def _check_no_secrets(node: Node, label: str, findings: Findings) -> None:
    for path, leaf in _texts(node):
        where = f"{label}.{path}" if path else label
        if secret_references(leaf.text):
            hint = "Put secrets into `connections` and `storage`"
            findings.error(leaf, f"`{where}` cannot hold a secret", hint, "secret-reference")
        elif password_in_clear(leaf.text):
            hint = "Put credentials into `storage`, as secret references"
            findings.error(leaf, f"the URL in `{where}` has a password in plain text", hint, "secret-in-clear")


def _texts(node: Node) -> Iterator[tuple[str, Node]]:
    return ((path, leaf) for path, leaf in leaves(node) if isinstance(leaf.value, str))
