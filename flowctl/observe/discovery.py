"""The objects that patterns match, as their sources list them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flowctl.connectors.base import Connector
from flowctl.errors import FlowctlError
from flowctl.model.table_info import ObjectName
from flowctl.observe.asking import Connections, ask_for_each, in_parallel
from flowctl.observe.streams import stream_source
from flowctl.resolve.expand import is_excluded
from flowctl.spec.names import is_pattern
from flowctl.spec.spec import ObjectSource, Spec, StreamTable, TableSpec


@dataclass(frozen=True)
class Discovery:
    """The objects that each pattern matches, by the pattern's id; ``failures`` has the patterns that could not be
    listed."""

    objects: Mapping[str, Sequence[ObjectName]]
    failures: Mapping[str, FlowctlError]


def discover(spec: Spec, connections: Connections) -> Discovery:
    """Lists the sources of patterns; within one connection, sequentially."""
    patterns: dict[str, list[TableSpec]] = {}
    for table in spec.tables:
        if is_pattern(table.id) and isinstance(table.source, ObjectSource):
            patterns.setdefault(table.source.connection, []).append(table)

    def discovered(name: str) -> dict[str, list[ObjectName] | FlowctlError]:
        by_id = {table.id: table for table in patterns[name]}

        def ask(ids: Sequence[str]) -> dict[str, list[ObjectName]]:
            connector = connections.get(name)
            return {id: _chosen(spec, connector, by_id[id]) for id in ids}

        return ask_for_each(ask, list(by_id), connections.mark(name))

    answers = {id: found for listed in in_parallel(discovered, patterns).values() for id, found in listed.items()}
    return Discovery(
        objects={id: found for id, found in answers.items() if not isinstance(found, FlowctlError)},
        failures={id: found for id, found in answers.items() if isinstance(found, FlowctlError)},
    )


def _chosen(spec: Spec, connector: Connector, table: TableSpec) -> list[ObjectName]:
    """Without those that `exclude` names. Only here it is known how the source compares names."""
    found = _listed(spec, connector, table)
    source = connector.source
    return [one for one in found if not is_excluded(one, table.exclude, source.fold)] if source else found


def _listed(spec: Spec, connector: Connector, table: TableSpec) -> list[ObjectName]:
    assert isinstance(table.source, ObjectSource)
    pattern = table.source.parts
    if isinstance(table.source, StreamTable):
        return stream_source(spec, spec.streams[table.source.stream], connector).discover(pattern)
    if connector.source is None:
        return []
    found = connector.source.discover(pattern)
    return sorted([*found, *connector.source.discover_views(pattern)]) if table.include_views else found
