"""The objects that patterns match, as their sources list them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from flowctl.connectors.base import Connector
from flowctl.errors import FlowctlError
from flowctl.model.table_info import ObjectName
from flowctl.observe.asking import Connections, ask_for_each, in_parallel
from flowctl.observe.streams import stream_source
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
        parts = {table.id: table.source.parts for table in patterns[name] if isinstance(table.source, ObjectSource)}
        streams = {table.id: table.source.stream for table in patterns[name] if isinstance(table.source, StreamTable)}

        with_views = {table.id for table in patterns[name] if table.include_views}

        def ask(ids: Sequence[str]) -> dict[str, list[ObjectName]]:
            connector = connections.get(name)
            return {id: _listed(spec, connector, parts[id], streams.get(id), views=id in with_views) for id in ids}

        return ask_for_each(ask, list(parts), connections.mark(name))

    answers = {id: found for listed in in_parallel(discovered, patterns).values() for id, found in listed.items()}
    return Discovery(
        objects={id: found for id, found in answers.items() if not isinstance(found, FlowctlError)},
        failures={id: found for id, found in answers.items() if isinstance(found, FlowctlError)},
    )


def _listed(
    spec: Spec, connector: Connector, pattern: tuple[str, ...], stream: str | None, *, views: bool
) -> list[ObjectName]:
    if stream is not None:
        return stream_source(spec, spec.streams[stream], connector).discover(pattern)
    if connector.source is None:
        return []
    found = connector.source.discover(pattern)
    return sorted([*found, *connector.source.discover_views(pattern)]) if views else found
