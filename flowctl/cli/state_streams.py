"""`flowctl state resnapshot`, and what else concerns tables that follow a change stream."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from flowctl.cli.arguments import spec_argument, yes_option
from flowctl.cli.state_places import StatePlace, known_table, place_of_former, place_of_stream, place_of_table
from flowctl.errors import UsageError
from flowctl.text import some

if TYPE_CHECKING:
    from flowctl.spec.spec import Spec
    from flowctl.state.document import StateDocument
    from flowctl.storage.landing import LandingLog


@click.command("resnapshot")
@spec_argument
@click.argument("names", metavar="ID...", nargs=-1, required=True)
@click.option("--append-again", is_flag=True, help="Tables that append get all rows of the snapshot again.")
@yes_option
def resnapshot(spec: Spec, names: tuple[str, ...], append_again: bool, yes: bool) -> int:
    """Read tables of a change stream, or a whole stream, in full again. The next run does it, and replaces the content
    of each target in one commit; soft deletes and histories are compared by key."""
    from flowctl.cli.state import write_change
    from flowctl.state import streams

    whole = [name for name in names if name in spec.streams]
    if whole and len(names) > 1:
        raise UsageError(f"{whole[0]} is a whole stream", hint="Name one stream, or tables of one stream")
    place = place_of_stream(spec, whole[0]) if whole else one_place(spec, names)
    if not place.stream:
        again = f"`flowctl apply {spec.argument} --full-refresh {names[0]}`"
        raise UsageError(f"{names[0]} follows no change stream", hint=f"Use {again}")

    if spec.streams[place.stream].snapshot == "never":
        raise UsageError(
            f"the stream {place.stream} reads no table in full (snapshot: never)",
            hint=f"Use `flowctl apply {spec.argument} --full-refresh {names[0]}`, or set `snapshot: initial`",
        )

    def change(document: StateDocument) -> StateDocument:
        ids = list(document.tables) if whole else list(names)
        for id in ids:
            known_table(spec, document, id)
        document = streams.resnapshot(document, ids, append_again=append_again)
        return streams.anew(document) if whole else document

    return write_change(spec, "resnapshot", change, yes=yes, place=place)


@click.command("end-stream")
@spec_argument
@click.argument("name", metavar="STREAM")
@click.option("--reader-is-gone", is_flag=True, help="Do not ask the source: the stream's reader was removed there.")
@yes_option
def end_stream(spec: Spec, name: str, reader_is_gone: bool, yes: bool) -> int:
    """End a change stream that no table of the spec reads any more: remove its reader from the source, and what it has
    captured. Touches no target."""
    from flowctl.cli.state import write_change
    from flowctl.connectors import registry
    from flowctl.connectors.base import OpenContext
    from flowctl.observe.streams import stream_source
    from flowctl.spec.spec import stream_of
    from flowctl.state.streams import ended, former_stream, landing_log

    place = place_of_former(spec, name)
    readers = [table.id for table in spec.tables if stream_of(table) == name]
    if readers:
        raise UsageError(f"{some(readers)} read the stream {name}", hint="Take them out of the spec first")

    def change(document: StateDocument) -> StateDocument:
        if document.stream is None:
            raise UsageError(f"the stream {name} has ended", hint="Run `flowctl plan`: it lists the streams")
        return ended(document)

    def finish(document: StateDocument) -> None:
        stream = document.stream
        assert stream is not None
        if not reader_is_gone:
            connection = spec.connections.get(stream.connection)
            if connection is None:
                raise UsageError(
                    f"the spec has no connection {stream.connection}, whose log the stream reads",
                    hint="Put it back into `connections` for this, or remove the reader in the source and give "
                    "--reader-is-gone",
                )
            with registry.open(connection, OpenContext(spec.storage, spec.base_dir, None)) as connector:
                former = former_stream(spec, name, stream)
                stream_source(spec, former, connector).end(former)
        landing_log(spec, name).remove_all()

    return write_change(spec, "end-stream", change, yes=yes, place=place, first=finish)


def set_batch(spec: Spec, name: str, number: int, *, yes: bool) -> int:
    """`state set --batch`: a table, or all tables of a stream, take what was captured after the batch again."""
    from flowctl.cli.state import write_change
    from flowctl.state.streams import rewound

    is_stream = name in spec.streams
    place = place_of_stream(spec, name) if is_stream else place_of_table(spec, name)
    if not place.stream:
        raise UsageError(f"{name} follows no change stream", hint="Give --position")

    def change(document: StateDocument) -> StateDocument:
        from flowctl.state.streams import applied, landing_log

        if not is_stream:
            known_table(spec, document, name)
        ids = [id for id in document.tables if applied(document, id) is not None] if is_stream else [name]
        for id in ids:
            _require_rewindable(spec, document, id, number)
        log = landing_log(spec, place.stream)
        kept = log.numbers()
        batch = log.batch(number)
        if batch is None:
            known = f"Batches {kept[0]} to {kept[-1]} are kept" if kept else "No batch is kept"
            raise UsageError(f"batch {number} of {place.stream} is not kept", hint=known)
        for id in ids:
            _require_sent(spec, document, id, number, log)
        return rewound(document, ids, batch)

    return write_change(spec, "set", change, yes=yes, place=place)


def one_place(spec: Spec, table_ids: Sequence[str]) -> StatePlace:
    """Where all of these tables are. Raises :class:`UsageError` if they are in several states."""
    places = {place.stream: place for place in (place_of_table(spec, id) for id in table_ids)}
    if len(places) > 1:
        names = " and ".join(f"the stream {name}" if name else "the flow" for name in sorted(places))
        raise UsageError(f"these tables have different states: {names}", hint="Name those of one at a time")
    return next(iter(places.values()))


def require_rewindable(spec: Spec, stream: str, before: StateDocument, after: StateDocument) -> None:
    """`state rollback`: the tables that it takes back take changes again, as with `state set --batch`."""
    from flowctl.state.streams import applied, landing_log

    log = landing_log(spec, stream)
    hint = f"Take the other tables back by themselves: `flowctl state set {spec.argument} ID --batch N`"
    for id in after.tables:
        reached, number = applied(before, id), applied(after, id)
        if reached is not None and number is not None and number < reached:
            _require_rewindable(spec, before, id, number, hint)
            _require_sent(spec, before, id, number, log, hint)


def _require_rewindable(spec: Spec, document: StateDocument, table_id: str, number: int, hint: str = "") -> None:
    from flowctl.state.streams import applied

    reached = applied(document, table_id)
    if reached is None:
        raise UsageError(f"{table_id} waits for its snapshot", hint="Run `flowctl apply`")
    if number > reached:
        raise UsageError(f"{table_id} has come to batch {reached}, not to {number}", hint="Choose a lower batch")
    if _definition(spec, document, table_id)["mode"] == "append":
        what = f"{table_id} appends: it would get these changes twice"
        raise UsageError(what, hint=hint or "Leave it where it is")


def _require_sent(
    spec: Spec, document: StateDocument, table_id: str, number: int, log: LandingLog, hint: str = ""
) -> None:
    """A history takes values that an update has not sent from its current version, which is a later one than that of
    the update if the batches after ``number`` are taken again."""
    from flowctl.model.table_info import ObjectName
    from flowctl.state.streams import applied

    definition = _definition(spec, document, table_id)
    if definition["mode"] != "scd2":
        return
    object = ObjectName(tuple(definition["from"]["object"]))
    found = [batch.table(object) for batch in log.between(number, applied(document, table_id) or number)]
    shapes = [log.shape(digest) for table in found if table is not None for digest in table.shapes.values()]
    names = dict.fromkeys(name for shape in shapes for name in shape.left_out)
    if names:
        raise UsageError(
            f"{table_id} is a history, and its updates may not have sent long values that were unchanged, of"
            f" {some([*names])}: older versions would get those of the current one",
            hint=hint or "Leave it where it is; REPLICA IDENTITY FULL lets later changes be taken again",
        )


def _definition(spec: Spec, document: StateDocument, table_id: str) -> Mapping[str, Any]:
    """That under which the table takes changes. `state adopt` may have found none: then the spec's."""
    from flowctl.plan.acceptance import current
    from flowctl.plan.definition import definition
    from flowctl.plan.planning import observe_table

    return current(document.table(table_id)) or definition(observe_table(spec, table_id)[0], None)
