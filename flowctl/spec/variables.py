"""The values of ``vars``: the file's, overridden by ``FLOWCTL_VAR_NAME``, overridden by ``--var name=value``."""

from __future__ import annotations

import os
from collections.abc import Mapping

from flowctl.diagnostics import Mark
from flowctl.spec.document import plain_value
from flowctl.spec.findings import Findings
from flowctl.spec.node import Node, YamlScalar
from flowctl.spec.suggest import did_you_mean


def variables_of(root: Node, given: Mapping[str, str], findings: Findings) -> dict[str, YamlScalar]:
    """Every variable with its value. A given text is parsed as YAML where the file's own value is not a text: with
    ``splits: 16``, ``--var splits=8`` is the number 8."""
    written = root.get("vars")
    declared = written.entries if written else {}
    for name in given:
        if name not in declared:
            hint = did_you_mean(name, declared, "Declare it in `vars`; there are: ")
            place = written.place if written else Mark(root.mark.file, 1)
            findings.error(place, f"--var {name}: there is no such variable", hint, "unknown-variable")
    return {name: _value(name, node, given, findings) for name, node in declared.items()}


def _value(name: str, node: Node, given: Mapping[str, str], findings: Findings) -> YamlScalar:
    own = node.value
    if isinstance(own, dict | list):
        what = f"`vars.{name}` is not a single value"
        findings.error(node, what, "Write a text, a number or a boolean", "wrong-type")
        return None
    if isinstance(own, str) and "{{" in own:
        findings.error(node, "`vars` takes no {{ }}", "Write the value out", "template-in-vars")
    text = given.get(name, os.environ.get(f"FLOWCTL_VAR_{name.upper()}"))
    if text is not None:
        return text if own is None or isinstance(own, str) else plain_value(text)
    if own is None:
        hint = f"Give one: --var {name}=… or FLOWCTL_VAR_{name.upper()}"
        findings.error(node, f"`vars.{name}` has no value", hint, "variable-without-value")
    return own
