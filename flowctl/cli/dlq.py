"""`flowctl dlq`: messages that could not be decoded or failed a check, and another try for them."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING, Any

import click

from flowctl import text
from flowctl.cli import output
from flowctl.cli.arguments import spec_argument, yes_option
from flowctl.errors import ExitCode, UsageError

if TYPE_CHECKING:
    from flowctl.run.letter_box import LetterBox
    from flowctl.spec.spec import Spec
    from flowctl.state.document import StateDocument

#: The version of the JSON that ``--format json`` prints.
FORMAT = 1
#: Characters of a message that the text shows.
_SHOWN = 60


@click.group("dlq")
def command() -> None:
    """Show dead letters, the messages that could not be decoded or failed a check, and have them read again."""


@command.command("list")
@spec_argument
def list_letters(spec: Spec) -> int:
    """How many dead letters each table has, and why."""
    from flowctl.run.letter_box import open_boxes

    with open_boxes(spec, (), output.settings().verbose, output.write_line) as boxes:
        found = [(box, box.counts()) for box in boxes]
    if output.settings().format == "json":
        output.write_json({"format": FORMAT, "flow": spec.flow, "tables": [_counts_json(*one) for one in found]})
        return ExitCode.OK
    rows = [(box.table.id, f"{count:,}", error, reason) for box, counts in found for error, reason, count in counts]
    sent = [f"{box.table.id} sends its dead letters to topic {box.name}." for box, _ in found if box.is_topic]
    if rows:
        header = ("table", "letters", "error", "reason")
        output.write_result("\n".join(text.table(header, rows, output.width(), left=("table", "error", "reason"))))
    elif len(sent) < len(found):
        output.write_result("There are no dead letters.")
    for line in sent:
        output.write_result(line)
    return ExitCode.OK


@command.command("show")
@spec_argument
@click.argument("table_id", metavar="ID")
@click.option("--limit", type=click.IntRange(min=1), default=20, show_default=True, help="How many, the newest first.")
def show(spec: Spec, table_id: str, limit: int) -> int:
    """The newest dead letters of one table. As JSON, with whole keys, values and headers."""
    from flowctl.run.letter_box import open_boxes

    with open_boxes(spec, (table_id,), output.settings().verbose, output.write_line) as [box]:
        _require_table(box)
        found = box.newest(limit)
    if output.settings().format == "json":
        letters = [{name.removeprefix("_"): _json(value) for name, value in one.items()} for one in found]
        output.write_json({"format": FORMAT, "flow": spec.flow, "id": table_id, "table": box.name, "letters": letters})
    elif found:
        header = ("topic", "partition", "offset", "reason", "message")
        rows = [
            (one["_topic"], str(one["_partition"]), f"{one['_offset']:,}", one["_reason"], _preview(one["_value"]))
            for one in found
        ]
        output.write_result("\n".join(text.table(header, rows, output.width(), left=("topic", "reason", "message"))))
    else:
        output.write_result(f"{table_id} has no dead letters.")
    return ExitCode.OK


@command.command("replay")
@spec_argument
@click.argument("table_id", metavar="ID")
@click.option("--cancel", is_flag=True, help="Withdraw it: the next run reads none again.")
@yes_option
def replay(spec: Spec, table_id: str, cancel: bool, yes: bool) -> int:
    """Have the next run read a table's dead letters again, under the spec as it is then. What still does not fit
    becomes a dead letter of that run."""
    from flowctl.cli.state import write_change
    from flowctl.cli.state_places import known_table, place_of_table
    from flowctl.run.letter_box import open_boxes
    from flowctl.state import document as documents
    from flowctl.state.letters import Replay

    def change(document: StateDocument) -> StateDocument:
        known_table(spec, document, table_id)
        return documents.with_replay(document, table_id, wanted)

    wanted: Replay | None = None
    if cancel:
        return write_change(spec, "replay", change, yes=yes, place=place_of_table(spec, table_id))
    with open_boxes(spec, (table_id,), output.settings().verbose, output.write_line) as [box]:
        _require_table(box)
        if not box.table.reads_letters_again:
            raise UsageError(
                f"{table_id} replaces rows by key: an old message would overwrite what came after it",
                hint=f"Read the topic again: `flowctl apply {spec.argument} --full-refresh {table_id}`",
                mark=box.table.mark_of("mode"),
            )
        count = sum(count for *_, count in box.counts())
    if not count:
        raise UsageError(f"{table_id} has no dead letters", hint=f"Run `flowctl dlq list {spec.argument}`")

    wanted = Replay(count, box.name)
    code = write_change(spec, "replay", change, yes=yes, place=place_of_table(spec, table_id))
    letters = text.counted(count, "dead letter")
    output.write_line(f"`flowctl apply {spec.argument}` reads {letters} of {table_id} again.")
    return code


def _require_table(box: LetterBox) -> None:
    if box.is_topic:
        raise UsageError(
            f"{box.table.id} sends its dead letters to topic {box.name}, which flowctl does not read back",
            hint="Read that topic with a consumer; to read its messages again, send them to the topic they came from",
            mark=box.table.mark_of("dead_letters.to"),
        )


def _counts_json(box: LetterBox, counts: list[tuple[str, str, int]]) -> dict[str, Any]:
    return {
        "id": box.table.id,
        "table": box.name,
        "letters": None if box.is_topic else sum(count for *_, count in counts),
        "errors": [{"error": error, "reason": reason, "letters": count} for error, reason, count in counts],
        "replay": box.state.replay is not None,
    }


def _json(value: Any) -> Any:
    match value:
        case bytes():
            shown = text.bytes_in_json(value)
            return shown.get("value", shown)
        case dt.datetime():
            return value.isoformat().replace("+00:00", "Z")
        case _:
            return value


def _preview(value: bytes | None) -> str:
    """On one line, and without anything that a terminal would execute."""
    if value is None:
        return "(none)"
    start = value[: 4 * _SHOWN].decode(errors="replace")
    return text.cut("".join(one if one.isprintable() else "·" for one in start), _SHOWN)
