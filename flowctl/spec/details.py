"""What JSON Schema cannot express about a single table: one check per expectation, known types, known placeholders."""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from typing import Any

from flowctl.expect.expectation import RowExpectation
from flowctl.expect.kinds import kinds
from flowctl.model import reserved, types, units
from flowctl.spec import limits
from flowctl.spec.findings import Findings
from flowctl.spec.names import PLACEHOLDERS
from flowctl.spec.node import Node, plain, texts
from flowctl.spec.schema import definition
from flowctl.spec.suggest import did_you_mean, nearest
from flowctl.spec.template import placeholders


def check_details(table: Node, findings: Findings) -> None:
    """``table`` is a merged entry that the schemas accept."""
    expect = table.entries.get("expect")
    for entry in expect.items if expect else ():
        _check_expectation(entry, findings)
    _check_types(table, findings)
    for title, value in _values_with_title(table, definition("table")):
        match title:
            case "time zone":
                _check_zone(value, findings)
            case "duration":
                _check_duration(value, findings)
    _check_encoding(table.get("format.encoding"), findings)
    _check_dead_letters(table, findings)
    _check_key_of_target(table, findings)
    _check_columns(table, findings)
    _check_masks(table, findings)
    _check_placeholders(table, findings)


def _values_with_title(node: Node, schema: Mapping[str, Any]) -> Iterator[tuple[str, Node]]:
    """The values below ``node`` whose schema has a title, each with its title."""
    properties = schema.get("properties") or schema.get("then", {}).get("properties", {})
    for key, child in node.entries.items():
        if isinstance(described := properties.get(key), Mapping):
            yield from _values_with_title(child, described)
    for item in node.items:
        yield from _values_with_title(item, schema.get("items", {}))
    if "title" in schema:
        yield schema["title"], node


def _check_expectation(entry: Node, findings: Findings) -> None:
    checks = kinds()
    given = [check for key, check in checks.items() if key in entry.entries]
    if not set(entry.entries) <= {*checks, "column", "on_fail"}:
        return  # reported by the schema
    if len(given) != 1:
        named = " and ".join(f"`{check.key}`" for check in given)
        what = f"an expectation has {named}" if given else "an expectation checks nothing"
        hint = "Write each check as an entry of its own" if given else f"Add one of {', '.join(checks)}"
        findings.error(entry, what, hint, "expectation")
        return
    check, column = given[0], entry.entries.get("column")
    if check.takes_column and column is None:
        findings.error(entry, f"the expectation `{check.key}` has no `column`", "Add `column: …`", "missing-key")
    if column is not None and not check.takes_column:
        findings.error(column.place, f"the expectation `{check.key}` takes no `column`", "Remove it", "unusable-key")
    on_fail = entry.entries.get("on_fail")
    if on_fail and on_fail.value == "quarantine" and not issubclass(check, RowExpectation):
        what = f"`{check.key}` looks at the whole batch: there is no row to quarantine"
        findings.error(on_fail, what, "Use on_fail: fail or warn", "expectation")
    argument = entry.entries[check.key]
    if flaw := check.flaw(plain(argument)):
        findings.error(argument, *flaw, "expectation")


def _check_dead_letters(table: Node, findings: Findings) -> None:
    """A dead letter is the whole message, with the values that `columns.mask` hides."""
    masked = table.get("columns.mask")
    if "dead_letters" in table.entries and masked:
        what = "`dead_letters` keeps whole messages: with the values that `columns.mask` hides"
        hint = "Remove one of the two; without `dead_letters`, the first such message stops the table"
        findings.error(table.entries["dead_letters"].place, what, hint, "not-together")


def _check_key_of_target(table: Node, findings: Findings) -> None:
    key, mode = table.get("to.key"), table.entries.get("mode")
    if key is not None and mode is not None and mode.text == "merge":
        what = "`to.key` is for append: with mode merge, messages have the table's `key`"
        findings.error(key.place, what, "Remove it", "unusable-key")


def _check_types(table: Node, findings: Findings) -> None:
    for path in ("columns.types", "format.schema", "format.partitions", "format.key.schema"):
        declared = table.get(path)
        for column, kind in declared.entries.items() if declared else ():
            try:
                types.parse(kind.text)
            except ValueError as error:
                known = ("int", "bigint", "double", "decimal(18,2)", "string", "date", "timestamp", "boolean", "binary")
                hint = did_you_mean(kind.text, known, "Types are, for example: ")
                findings.error(kind, f"column `{column}`: {error}", hint, "unknown-type")


def _check_zone(zone: Node, findings: Findings) -> None:
    if placeholders(zone.text):
        return
    from zoneinfo import available_timezones

    known = available_timezones()  # empty if the machine has no time zone data: then the source checks the name
    if known and zone.text not in known:
        hint = nearest(zone.text, known, "Write a name such as Europe/Amsterdam or UTC")
        findings.error(zone, f"there is no time zone '{zone.text}'", hint, "unknown-zone")


def _check_duration(duration: Node, findings: Findings) -> None:
    if not isinstance(duration.value, str):
        return
    try:
        is_longer = units.seconds(duration.text) > units.seconds(units.LONGEST)
    except (ValueError, KeyError):
        return  # reported by the schema
    if is_longer:
        what = f"a duration of {limits.shown(duration.text)} is too long"
        findings.error(duration, what, f"Write at most {units.LONGEST}", "too-long")


def _check_encoding(encoding: Node | None, findings: Findings) -> None:
    """The encoding must be known to Python, which reads the headers. Codecs that are not for text, such as base64, are
    rejected."""
    if encoding is None or not isinstance(encoding.value, str) or placeholders(encoding.text):
        return
    try:
        io.TextIOWrapper(io.BytesIO(), encoding=encoding.text)
    except (LookupError, ValueError):
        what = f"there is no character set '{limits.shown(encoding.text)}'"
        hint = nearest(encoding.text, _ENCODINGS, "Write a name such as UTF-8, UTF-16 or ISO-8859-1")
        findings.error(encoding, what, hint, "unknown-encoding")


_ENCODINGS = ("UTF-8", "UTF-16", "ISO-8859-1", "windows-1252")


def _check_columns(table: Node, findings: Findings) -> None:
    """`key` and `valid_from` name target columns: an excluded column cannot identify a row or supply its event time."""
    include, exclude = table.get("columns.include"), table.get("columns.exclude")
    if include and exclude:
        what = "`columns.exclude` cannot be used together with `columns.include`"
        findings.error(exclude.place, what, "Keep one of the two", "not-together")
        return
    rename = table.get("columns.rename")
    renamed = {column: target.text for column, target in rename.entries.items()} if rename else {}
    added = table.get("columns.add")
    added_names = {*renamed.values(), *(added.entries if added else ())}
    left_out = {item.text for item in exclude.items} if exclude else set()
    kept = {renamed.get(item.text, item.text) for item in include.items} if include else None
    key = table.get("key")
    needed = [("key column", item) for item in (key.items if key else ())]
    event = table.get("scd2.valid_from")
    if event is not None and event.value not in ("now", "commit"):
        needed.append(("event time", event))
    for role, column in needed:
        gone = column.text in left_out or (kept is not None and column.text not in kept)
        if gone and column.text not in added_names:
            hint = f"Copy it too, or choose another {role.removesuffix(' column')}"
            findings.error(column, f"{role} `{column.text}` is left out by `columns`", hint, "key-left-out")
    mode = table.entries.get("mode")
    for column in key.items if key and mode and mode.text == "scd2" else ():
        if reserved.is_taken_for_key(column.text):
            what = f"key column `{column.text}` has a name that is reserved in a history"
            hint = f"Rename it: columns: {{rename: {{{column.text}: source_{column.text.lstrip('_')}}}}}"
            findings.error(column, what, f"{hint}, and use the new name in `key`", "reserved-name")


def _check_masks(table: Node, findings: Findings) -> None:
    """A cursor's values are recorded and shown as positions; an event time is read as a time. Both may have been
    masked by defaults or a pattern, so the errors are where the column is named."""
    masked = table.get("columns.mask")
    if masked is None:
        return
    cursor, event, rename = (table.get(path) for path in ("cursor.column", "scd2.valid_from", "columns.rename"))
    if cursor is not None and cursor.text in masked.entries:
        what = f"cursor `{cursor.text}` is masked: the plan, the state and the target's commits have its values"
        hint = "Take another column as `cursor`, or remove its mask"
        findings.error(cursor, f"{what} as they are", hint, "not-together")
    sources = {target.text: column for column, target in rename.entries.items()} if rename else {}
    is_column = event is not None and event.value not in ("now", "commit")
    if event is not None and is_column and sources.get(event.text, event.text) in masked.entries:
        hint = "Take another column as `valid_from`, or remove its mask"
        findings.error(event, f"event time `{event.text}` is masked: a hash is not a time", hint, "not-together")


def _check_placeholders(table: Node, findings: Findings) -> None:
    for text in texts(table):
        for name in placeholders(text.text):
            if name.startswith("secret:"):
                hint = "Put secrets into `connections` and `storage`"
                findings.error(text, "a table cannot hold a secret", hint, "secret-in-table")
            elif name not in PLACEHOLDERS:
                hint = did_you_mean(name, PLACEHOLDERS, "Write $${ for a literal ${; there are: ")
                findings.error(text, f"there is no placeholder ${{{name}}}", hint, "unknown-placeholder")
