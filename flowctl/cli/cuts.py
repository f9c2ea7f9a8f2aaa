"""`flowctl cuts`: which versions of a lake's tables show one moment of a change stream's source."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from flowctl import text
from flowctl.cli import output
from flowctl.cli.arguments import spec_argument
from flowctl.cli.state_places import place_of_stream
from flowctl.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from flowctl.connectors.target import Target
    from flowctl.run.streaming.cuts import Cut
    from flowctl.spec.spec import Spec

#: The version of the JSON that ``--format json`` prints.
FORMAT = 1


@click.command("cuts")
@spec_argument
@click.argument("stream", metavar="STREAM")
@click.option("--limit", type=click.IntRange(min=1), default=1, show_default=True, help="How many cuts per connection.")
def command(spec: Spec, stream: str, limit: int) -> int:
    """Print the newest cuts of STREAM: the versions of its tables that belong together, and how readers open them."""
    from flowctl.observe.asking import Connections
    from flowctl.run.streaming.cuts import Cuts

    targets = _targets(spec, stream)
    document = place_of_stream(spec, stream).store.read()
    found: list[dict[str, Any]] = []
    without: list[str] = []
    with Connections(spec) as connections:
        for name in targets:
            target = connections.get(name).target
            folder = target.cuts_folder() if target else None
            if target is None or folder is None:
                without.append(f"{name} ({spec.connections[name].type})")
                continue
            cuts = Cuts(spec, folder, document.lineage, stream).newest(limit)
            found += [_to_json(name, target, cut) for cut in cuts]
    if output.settings().format == "json":
        output.write_json({"format": FORMAT, "flow": spec.flow, "stream": stream, "cuts": found})
    elif found:
        output.write_result("\n".join(line for cut in found for line in _lines(cut)))
    elif len(without) == len(targets):
        output.write_result(f"{stream}  no cuts: they are for tables on Delta, and these are in {', '.join(without)}")
    else:
        output.write_result(f"{stream}  no cut yet: `flowctl apply {spec.argument}` writes one after each commit")
    return ExitCode.OK


def _targets(spec: Spec, stream: str) -> list[str]:
    from flowctl.spec.spec import stream_of

    names = dict.fromkeys(table.target.connection for table in spec.tables if stream_of(table) == stream)
    if not names:
        raise UsageError(f"no table reads the stream {stream!r}")
    return list(names)


def _to_json(connection: str, target: Target, cut: Cut) -> dict[str, Any]:
    from flowctl.model.table_info import ObjectName

    return {
        "connection": connection,
        "batch": cut.batch,
        "at": cut.at,
        "event_at": cut.event_at,
        "tables": [
            {
                "id": id,
                "table": table.table,
                "version": table.version,
                "queries": dict(target.version_queries(ObjectName(tuple(table.parts)), table.version)),
            }
            for id, table in cut.tables.items()
        ],
    }


def _lines(cut: dict[str, Any]) -> Iterator[str]:
    moment = cut["event_at"] or "before the first commit"
    yield f"{cut['connection']}  batch {cut['batch']}, {moment}, {cut['at']} in the source's log"
    rows = [(one["id"], one["table"], str(one["version"])) for one in cut["tables"]]
    yield from text.table(("id", "table", "version"), rows, output.width(), left=("id", "table"))
    for reader in dict.fromkeys(reader for one in cut["tables"] for reader in one["queries"]):
        yield f"-- {reader}"
        yield from (f"{one['queries'][reader]};" for one in cut["tables"] if reader in one["queries"])
