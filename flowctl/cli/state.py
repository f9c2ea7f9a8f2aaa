"""`flowctl state`: what the state store remembers, and changes to it, each shown as a diff and confirmed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from flowctl.cli import output
from flowctl.cli.arguments import spec_argument, yes_option
from flowctl.cli.state_places import StatePlace, known_table, place_of_stream, place_of_table, stream_option
from flowctl.cli.state_streams import end_stream, resnapshot
from flowctl.cli.state_views import FORMAT, history, list_tables, show, state_json
from flowctl.errors import ExitCode, StoppedByPolicy, UsageError

if TYPE_CHECKING:
    from flowctl.model.position import Position
    from flowctl.model.types import DataType
    from flowctl.plan.appending import Kind
    from flowctl.spec.spec import Spec, TableSpec
    from flowctl.state.document import StateDocument, TableState


@click.group("state")
def command() -> None:
    """Show and change what the state store remembers. Sequence numbers only rise; no version is ever lost."""


for _part in (list_tables, show, history, resnapshot, end_stream):
    command.add_command(_part)


@command.command("set")
@spec_argument
@click.argument("table_id", metavar="ID")
@click.option("--position", help="A cursor's value, `beginning`, `full`, or JSON as in `state show --format json`.")
@click.option("--batch", type=click.IntRange(min=0), help="The last batch of its stream that the table is to have.")
@click.option("--accept-definition", is_flag=True, help="Continue with the spec's current definition.")
@click.option(
    "--append-again", is_flag=True, help="Append all rows above the position again, even if the target has them."
)
@yes_option
def set_table(
    spec: Spec,
    table_id: str,
    position: str | None,
    batch: int | None,
    accept_definition: bool,
    append_again: bool,
    yes: bool,
) -> int:
    """Change where a table continues; its sequence number stays. append treats the rows at the position itself as
    written and reads the rows above it; merge and scd2 read those rows again. ID may be a stream for --batch."""
    from flowctl.cli import state_streams
    from flowctl.state import document as documents

    if batch is not None:
        if position is not None or accept_definition or append_again:
            raise UsageError("--batch stands alone", hint="Give it without other options")
        return state_streams.set_batch(spec, table_id, batch, yes=yes)
    if position is None and not accept_definition:
        raise UsageError("nothing to set", hint="Give --position, --accept-definition, both, or --batch")
    place = place_of_table(spec, table_id)
    if place.stream and position is not None:
        again = f"`flowctl state resnapshot {spec.argument} {table_id}`"
        raise UsageError(
            f"{table_id} follows the stream {place.stream}: its position is a batch",
            hint=f"Give --batch to take later changes again; {again} reads the table in full",
        )
    if append_again and position is None:
        raise UsageError("--append-again needs a position", hint="Give --position, the last row not to append again")

    def change(document: StateDocument) -> StateDocument:
        table, again = known_table(spec, document, table_id), append_again
        if position is not None:
            given = _position(spec, table_id, table, position)
        if accept_definition:
            document, appends_again = _accept(spec, document, table_id, has_position=position is not None)
            again = again or appends_again
        if position is not None:
            document = documents.with_position(document, table_id, given, append_again=again)
        return document

    return write_change(spec, "set", change, yes=yes, place=place)


@command.command("reset")
@spec_argument
@click.argument("table_ids", metavar="ID...", nargs=-1, required=True)
@yes_option
def reset(spec: Spec, table_ids: tuple[str, ...], yes: bool) -> int:
    """Forget tables, except for their sequence numbers: the next run reads them from the beginning. Touches no
    target."""
    from flowctl.cli.state_streams import one_place
    from flowctl.state import document as documents

    def change(document: StateDocument) -> StateDocument:
        for table_id in table_ids:
            known_table(spec, document, table_id)
            document = documents.reset(document, table_id)
        return document

    return write_change(spec, "reset", change, yes=yes, place=one_place(spec, table_ids))


@command.command("adopt")
@spec_argument
@click.argument("table_id", metavar="ID")
@click.option(
    "--position",
    help="Where to continue, if the target has no record of it; as for `state set`, or `now` for files.",
)
@yes_option
def adopt_target(spec: Spec, table_id: str, position: str | None, yes: bool) -> int:
    """Take sequence number, position and schema from the target as it is, and the definition that its rows were written
    under from state. Touches no data."""
    from flowctl.plan.case import Case
    from flowctl.plan.former_ids import left_behind
    from flowctl.plan.planning import observe_table
    from flowctl.plan.restored import unfinished_restoration
    from flowctl.run.adopt import adopt
    from flowctl.state import document as documents

    place = place_of_table(spec, table_id)
    if place.stream and position is not None:
        raise UsageError(
            f"{table_id} follows the stream {place.stream}: its position is a batch",
            hint="Leave --position out, and give `flowctl state set --batch` afterwards if need be",
        )

    def change(document: StateDocument) -> StateDocument:
        table, observed, ddl = observe_table(spec, table_id)
        if observed.target is None:
            raise StoppedByPolicy(
                f"{table.target} does not exist", hint="Run `flowctl apply`: it creates the table", mark=table.mark
            )
        before = document.table(table_id)
        left = left_behind(spec.tables, document)
        case = Case(table, observed, before, ddl, spec_path=spec.argument, left=left)
        if (stop := unfinished_restoration(case)) is not None:
            raise StoppedByPolicy(stop.reason, hint=stop.hint, mark=table.mark)
        adoption = adopt(document, case, place.store)
        adopted = adoption.document
        if position is not None:
            column = observed.source.column(table.cursor.column) if observed.source and table.cursor else None
            if position == "now" and observed.positions == "files" and observed.watermark is not None:
                given = observed.watermark.position
            else:
                given = _position(spec, table_id, before, position, table, column.type if column else None)
            again = adoption.is_another and table.mode == "append"  # what the record says is of another target
            return documents.with_position(adopted, table_id, given, append_again=again)
        if table.mode == "append" and not place.stream and adopted.table(table_id).position is None:
            files = "; `now` skips the files that exist now" if observed.positions == "files" else ""
            hint = f"Give --position: what is below it is not read; `beginning` reads all{files}"
            what = f"{table.target} has no record of its position"
            if (other := adoption.other) is not None:
                what = other.told(table.target)
            raise UsageError(what, hint=hint)
        return adopted

    return write_change(spec, "adopt", change, yes=yes, place=place)


@command.command("rollback")
@spec_argument
@click.option("--to", "serial", type=click.IntRange(min=1), required=True, help="A serial that `state history` lists.")
@stream_option
@yes_option
def rollback(spec: Spec, serial: int, stream: str | None, yes: bool) -> int:
    """Write a new version with an older one's positions and schemas. Sequence numbers do not fall, and the definitions
    that rows were written under since then stay."""
    from flowctl.cli.state_streams import require_rewindable
    from flowctl.state.rollback import roll_back
    from flowctl.state.streams import with_rolled_back

    place = place_of_stream(spec, stream)

    def change(document: StateDocument) -> StateDocument:
        then = place.store.read_serial(serial)
        after = with_rolled_back(document, roll_back(document, then), then)
        if place.stream:
            require_rewindable(spec, place.stream, document, after)
        return after

    return write_change(spec, "rollback", change, yes=yes, place=place)


@command.command("unlock")
@spec_argument
@stream_option
@yes_option
def unlock(spec: Spec, stream: str | None, yes: bool) -> int:
    """Release the lease on behalf of its holder. Use it only if the holder and its Spark job are certainly dead."""
    from flowctl.state import lease

    place = place_of_stream(spec, stream)
    blobs = place.store.blobs
    held = lease.current(blobs, place.lease_prefix)
    if held is None or held.released:
        _say_unlocked(spec, None)
        return ExitCode.OK
    output.write_line(f"- held by {held.describe()}")
    output.require_consent("Release it?", yes=yes)
    lease.break_lease(blobs, place.lease_prefix)
    _say_unlocked(spec, held.describe())
    return ExitCode.OK


def write_change(
    spec: Spec,
    verb: str,
    change: Callable[[StateDocument], StateDocument],
    *,
    yes: bool,
    place: StatePlace,
    first: Callable[[StateDocument], None] | None = None,
) -> int:
    """One change under the lease: shown, confirmed, written as the next serial. ``first`` is done once it is
    confirmed, with what state has so far."""
    from flowctl.state import file_log
    from flowctl.state.changes import differences, render
    from flowctl.state.lease import Lease

    store = place.store
    with Lease.acquire(store.blobs, prefix=place.lease_prefix, run_id=f"state {verb}") as lease:
        before = store.read()
        after = change(before)
        found = differences(before, after)
        for line in render(found):
            output.write_line(line)
        if found:
            output.require_consent("Write this?", yes=yes)
            lease.check()
            if first is not None:
                first(before)
            file_log.revive_positions(store.blobs, after.positions())
            after = store.write(after)
    if output.settings().format == "json":
        shown = [difference.to_json() for difference in found]
        output.write_json(state_json(spec, after, serial_before=before.serial, changes=shown))
    else:
        output.write_result(f"serial {before.serial} → {after.serial}" if found else "Nothing to change.")
    return ExitCode.OK


def _accept(spec: Spec, document: StateDocument, table_id: str, *, has_position: bool) -> tuple[StateDocument, bool]:
    """``document`` with the spec's current definition, and whether only the given position determines how far append
    has come. Raises :class:`StoppedByPolicy` if only a full refresh is correct."""
    from flowctl.plan import acceptance
    from flowctl.plan.definition import definition
    from flowctl.plan.planning import observe_table
    from flowctl.state import document as documents

    state = document.table(table_id)
    protects = any(table.columns.mask or table.columns.exclude for table in spec.tables)
    if not acceptance.written_under(state) and not (state.schema and protects):
        return documents.with_definition_accepted(document, table_id), False
    table, observed, _ = observe_table(spec, table_id)
    wanted = definition(table, observed.source)
    taken = acceptance.with_columns_accepted(state, wanted, table, observed.source)
    if taken != state and not has_position:  # the definition is unchanged
        return documents.with_table(document, table_id, taken), False
    refused = acceptance.refusal(state, wanted, observed.target)
    if refused and not (has_position and table.mode == "append"):
        again = f"`flowctl apply {spec.argument} --full-refresh {table_id}`"
        raise StoppedByPolicy(
            f"{table_id} cannot continue from here: {refused}",
            hint=f"Read all again under the new definition: {again}",
            mark=table.mark,
        )
    return acceptance.accepted(document, table_id, wanted), refused is not None


def _position(
    spec: Spec,
    table_id: str,
    state: TableState,
    text: str,
    table: TableSpec | None = None,
    cursor_type: DataType | None = None,
) -> Position | None:
    """``text`` as a position of the table's kind; :class:`UsageError` for one of another kind."""
    from flowctl.plan import appending
    from flowctl.state import changes

    kind = _kind(spec, table_id, state, table)
    if kind is None:
        return changes.position_from_text(text, state, cursor_type)
    hint = f"Write {_POSITIONS[kind]}"
    given = changes.position_from_text(text, state, cursor_type, is_version=kind == "version", hint=hint)
    if not appending.is_of_kind(given, kind):
        raise UsageError(f"{table_id} {_READ[kind]}: this is not a position for it", hint=hint)
    return given


def _kind(spec: Spec, table_id: str, state: TableState, table: TableSpec | None) -> Kind | None:
    """What the table's positions consist of. For a table of a pattern, its recorded definition determines it; None if
    none is recorded: then the plan checks it."""
    from flowctl.connectors import registry
    from flowctl.plan import appending
    from flowctl.plan.definition import definition

    table = table or next((one for one in spec.tables if one.id == table_id), None)
    wanted = definition(table, None) if table else state.definition
    source = wanted.get("from", {})
    connection = spec.connections.get(source.get("connection"))
    if connection is None and "sql" not in source:
        return None
    can = registry.capabilities(connection.type).source if connection else None
    return appending.kind_of(wanted, can.position if can else "none")


_READ = {
    "cursor": "is read by its cursor",
    "files": "reads each file once",
    "offsets": "reads the messages of a topic",
    "version": "is read by the versions of its source",
    "upstream": "reads other tables",
    "none": "is always read in full",
}
_POSITIONS = {
    "cursor": "the cursor's value, `beginning`, or JSON, which names the type: "
    '`{"kind": "cursor", "type": "timestamp[us, tz=UTC]", "value": "2026-01-01T00:00:00Z"}`',
    "files": "`beginning`, JSON as in `flowctl state show --format json`, or, for `state adopt`, `now`: the "
    "existing files count as read",
    "offsets": '`beginning`, or JSON as in `flowctl state show`: `{"kind": "offsets", "offsets": {"0": 120}}`',
    "version": '`beginning`, the number of a version, or JSON: `{"kind": "version", "version": 12}`',
    "upstream": "`full` or `beginning`",
    "none": "`full` or `beginning`",
}


def _say_unlocked(spec: Spec, holder: str | None) -> None:
    if output.settings().format == "json":
        output.write_json({"format": FORMAT, "flow": spec.flow, "released": holder})
    else:
        output.write_result("Released." if holder else "No run holds the lease.")
