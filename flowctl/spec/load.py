"""Loads files into a :class:`~flowctl.spec.spec.Spec`, in a sequence of passes; reports all errors of all passes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from flowctl.diagnostics import Diagnostic, Mark
from flowctl.errors import SpecError
from flowctl.spec import build, limits
from flowctl.spec.connections import check_connections
from flowctl.spec.findings import Findings
from flowctl.spec.include import gather
from flowctl.spec.lookup import find_connections
from flowctl.spec.merge import effective_tables, inherited_values
from flowctl.spec.node import Node, plain, scalar_text
from flowctl.spec.references import Sources
from flowctl.spec.schema import check
from flowctl.spec.semantics import check_flow
from flowctl.spec.spec import Spec
from flowctl.spec.streams import check_streams, check_tables_of_streams, stream
from flowctl.spec.tables import check_tables
from flowctl.spec.template import render
from flowctl.spec.topics import check_groups, check_registries, check_truncates
from flowctl.spec.variables import variables_of


@dataclass(frozen=True)
class Reading:
    """The result of one load: the spec if it is valid, the effective document as far as it could be read, all
    findings."""

    spec: Spec | None
    resolved: Node | None
    diagnostics: tuple[Diagnostic, ...]


_NONE: Mapping[str, str] = {}


def load_spec(
    paths: Sequence[str | Path], variables: Mapping[str, str], connections: Mapping[str, str] = _NONE
) -> Spec:
    """The valid spec in ``paths`` (further ones only add connections and tables to the first), with
    ``variables`` and ``connections`` (URLs by name) from the command line. Raises :class:`SpecError` with all findings.
    Resolves no secret."""
    reading = read_spec(paths, variables, connections)
    if reading.spec is None:
        raise SpecError(reading.diagnostics)
    return reading.spec


def read_spec(
    paths: Sequence[str | Path], variables: Mapping[str, str], connections: Mapping[str, str] = _NONE
) -> Reading:
    """As :func:`load_spec`, without raising."""
    try:
        return _read(paths, variables, connections)
    except RecursionError:  # SQL, a type or an expression: nesting within a value
        what = "a value is nested too deeply to be read"
        return Reading(None, None, (Diagnostic(what, "Shorten it", Mark(str(paths[0]), 1), "too-deep"),))


def _read(paths: Sequence[str | Path], variables: Mapping[str, str], given: Mapping[str, str]) -> Reading:
    findings = Findings()
    root = gather([Path(path) for path in paths], findings)
    if root is None:
        return Reading(None, None, findings.sorted)
    findings.next_pass()
    values = variables_of(root, variables, findings)
    root = render(root, values, findings)
    lookup = find_connections(root, given, values, findings)
    root = lookup.root
    findings.next_pass()
    findings.extend(check(root, "flow"))
    types = check_connections(root, findings)
    findings.next_pass()
    if (inherited := inherited_values(root)) > limits.INHERITED:
        what = f"the tables inherit {inherited:,} values from `defaults` and patterns, more than {limits.INHERITED:,}"
        findings.error(root.entries["tables"].place, what, "Split them into several flows", "too-large")
        return Reading(None, None, findings.sorted)
    stream_sources = check_streams(root, types, findings)
    entries, tables = check_tables(effective_tables(root), Sources(types, stream_sources), findings)
    findings.extend(check_flow(entries, tables))
    findings.extend(check_groups(tables))
    named = root.entries["connections"].entries if "connections" in root.entries else {}
    findings.extend(check_registries([name for name, node in named.items() if "registry" in node.entries], tables))
    resolved = _build_effective(root, entries)
    if findings.diagnostics:
        return Reading(None, resolved, findings.sorted)
    connections = root.entries["connections"].entries
    state = build.state(root.entries["state"])
    written = root.get("streams")
    streams = {
        name: stream(name, node, root.entries["flow"].text)
        for name, node in (written.entries if written else {}).items()
    }
    findings.extend(check_tables_of_streams(streams, tables, state.unsafe, types))
    findings.extend(check_truncates(tables, types))
    if findings.diagnostics:
        return Reading(None, resolved, findings.sorted)
    spec = Spec(
        flow=root.entries["flow"].text,
        state=state,
        connections={name: build.connection(name, node, lookup.origins[name]) for name, node in connections.items()},
        storage=build.storage(root.entries.get("storage")),
        spark=build.spark(root.entries.get("spark")),
        tables=tables,
        digest=_digest(resolved),
        path=str(paths[0]),
        variables={name: scalar_text(value) for name, value in values.items()},
        given=dict(variables),
        given_connections=lookup.given,
        marks=build.marks(root),
        streams=streams,
    )
    return Reading(spec, resolved, ())


def _build_effective(root: Node, tables: Mapping[str, Node]) -> Node:
    """The effective document: the result of applying variables, includes and defaults."""
    entries = {key: node for key, node in root.entries.items() if key not in ("vars", "include", "defaults")}
    if "tables" in entries:
        entries["tables"] = replace(entries["tables"], value=dict(tables))
    return replace(root, value=entries)


def _digest(resolved: Node) -> str:
    """Hex sha256 over the canonical JSON of the effective document: secrets as references or hidden, no places."""
    canonical = json.dumps(plain(resolved), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(canonical.encode()).hexdigest()
