"""Builds the frozen values of :mod:`flowctl.spec.spec` from nodes that the schemas accept. Nothing fails here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from flowctl.diagnostics import Mark
from flowctl.expect.expectation import Expectation
from flowctl.expect.kinds import kinds
from flowctl.model.units import fraction, seconds, size
from flowctl.spec.files_layout import FILE_FORMATS, FilesLayout
from flowctl.spec.node import Node, plain, scalar_text
from flowctl.spec.schema import definition
from flowctl.spec.secrets import Masked, parse_secrets
from flowctl.spec.spec import (
    ColumnRules,
    Connection,
    Cursor,
    DeadLetters,
    Deletes,
    DetectFlag,
    DetectMissingKeys,
    Guard,
    Layout,
    Metadata,
    Origin,
    ReadHints,
    ReportedDeletes,
    SchemaPolicies,
    Source,
    SparkSettings,
    StateLocation,
    StreamTable,
    TableSpec,
    TargetRef,
    TopicSource,
)
from flowctl.spec.topic_layout import MESSAGE_FORMATS, MessageFormat, TopicCreation, TopicLayout


def table(id: str, node: Node, source: Source, target: TargetRef, letters: TargetRef | None) -> TableSpec:
    """One table, from its merged entry. ``letters`` is what `dead_letters.to` names. Placeholders are kept until the
    source is listed."""

    def get(key: str, default: Any) -> Any:
        return plain(node.entries[key]) if key in node.entries else default

    expect = node.entries.get("expect")
    cursor, deletes = get("cursor", None), get("deletes", None)
    valid_from = get("scd2", {}).get("valid_from")
    is_streamed = isinstance(source, StreamTable)
    reports = is_streamed or (isinstance(source, TopicSource) and get("mode", "") in ("merge", "scd2"))
    if reports:
        valid_from = None  # the times are those of the commits or messages, and no column
    built = TableSpec(
        id=id,
        source=source,
        target=target,
        mode=get("mode", ""),
        mark=node.place,
        key=tuple(get("key", ())),
        cursor=_cursor(cursor) if isinstance(cursor, dict) else None,
        dedupe=get("dedupe", "fail" if valid_from == "now" else None),
        deletes=_reported(deletes) if reports else _deletes(deletes) if deletes else None,
        compare_ignore=tuple(get("compare", {}).get("ignore", ())),
        columns=ColumnRules(**_frozen(get("columns", {}))),
        where=get("where", None),
        read=ReadHints(**get("read", {})),
        layout=Layout(**_frozen(get("layout", {})), topic=_topic(get("to", {})), files=_files(get("to", {}))),
        expect=tuple(map(_expectation, expect.items)) if expect else (),
        guard=Guard(**_fractions(get("guard", {}))),
        dead_letters=_dead_letters(get("dead_letters", {}), letters) if "dead_letters" in node.entries else None,
        batch_rows=get("batch", {}).get("rows"),
        valid_from=valid_from,
        format=get("format", {}),
        exclude=tuple(get("exclude", ())),
        include_views=get("include_views", False),
        allow_none=get("allow_none", False),
        metadata=_metadata(node) if is_streamed else (),
        on_schema_change=SchemaPolicies(**get("on_schema_change", {})),
        on_error=get("on_error", "continue"),
        every=seconds(get("every", "")) if get("every", "") else None,
        marks={path: child.place for path, child in below(node, "")},
    )
    return replace(built, layout=_with_statistics(built))


def _topic(to: Any) -> TopicLayout:
    """``to`` may be text, which has no settings."""
    given = to if isinstance(to, dict) else {}
    format = given.get("format", {})
    kind: MessageFormat = next((kind for kind in MESSAGE_FORMATS if kind == format.get("type")), "json")
    return TopicLayout(
        format=kind,
        registry=format.get("registry", kind != "json"),
        subject=format.get("subject", ""),
        key=tuple(given.get("key", ())),
        headers=tuple(given.get("headers", ())),
        delivery=given.get("delivery", "exactly_once"),
        create=_creation(given),
    )


def _files(to: Any) -> FilesLayout:
    format = to.get("format", {}) if isinstance(to, dict) else {}
    given = {key: value for key, value in format.items() if key in _OF_FILES}
    kind = next((kind for kind in FILE_FORMATS if kind == format.get("type")), FilesLayout.format)
    file_bytes = size(format["file_size"]) if "file_size" in format else FilesLayout.file_bytes
    return FilesLayout(format=kind, file_bytes=file_bytes, **given)


_OF_FILES = ("compression", "header", "delimiter", "quote", "null_value")


def _creation(to: Any) -> TopicCreation | None:
    creation = to.get("create") if isinstance(to, dict) else None
    return TopicCreation(**creation) if creation is not None else None


def _dead_letters(written: Mapping[str, Any], to: TargetRef | None) -> DeadLetters:
    given = _fractions({key: value for key, value in written.items() if key != "to"})
    return DeadLetters(**given, to=to, create=_creation(written.get("to")))


def connection(name: str, node: Node, origin: Origin) -> Connection:
    options = {key: _with_secrets(child) for key, child in node.entries.items() if key != "type"}
    return Connection(name, node.entries["type"].text, options, node.place, origin)


def storage(node: Node | None) -> Mapping[str, Mapping[str, Any]]:
    return {prefix: _with_secrets(child) for prefix, child in node.entries.items()} if node else {}


def state(node: Node) -> StateLocation:
    """``node`` has no references."""
    if isinstance(node.value, str):
        return StateLocation(str(parse_secrets(node.value)))
    unsafe = node.entries.get("unsafe")
    return StateLocation(str(parse_secrets(node.entries["url"].text)), bool(unsafe and unsafe.value))


def marks(root: Node) -> Mapping[str, Mark]:
    """The places of values outside of tables that are checked after loading, by dotted path."""
    return {
        path: node.mark
        for key in ("state", "connections", "storage")
        if (written := root.entries.get(key))
        for path, node in [(key, written), *below(written, f"{key}.")]
    }


def below(node: Node, prefix: str) -> Iterator[tuple[str, Node]]:
    """Every key below ``node`` with its dotted path."""
    for key, child in node.entries.items():
        yield f"{prefix}{key}", child
        yield from below(child, f"{prefix}{key}.")


def spark(node: Node | None) -> SparkSettings:
    """Booleans and numbers in ``conf`` become text in the form that Spark expects."""
    if node is None:
        return SparkSettings()
    conf = node.entries.get("conf")
    settings = {key: child.text for key, child in conf.entries.items()} if conf else {}
    url = node.entries.get("url")
    return SparkSettings(url.text, settings) if url else SparkSettings(conf=settings)


def _cursor(written: Mapping[str, Any]) -> Cursor:
    given = dict(written)
    for key in ("lag", "delay"):
        if key in given:
            given[key] = seconds(given[key])
    if "start" in given:
        given["start"] = scalar_text(given["start"])
    return Cursor(**given)


def _deletes(written: Mapping[str, Any]) -> Deletes:
    given = {key: value for key, value in _frozen(written).items() if key != "detect"}
    if written["detect"] == "flag":
        return DetectFlag(**given)
    if "every" in given:
        given["every"] = seconds(given["every"])
    return DetectMissingKeys(**given)


def _expectation(entry: Node) -> Expectation:
    given = plain(entry)
    check = next(check for key, check in kinds().items() if key in given)
    return check.read(given, entry.mark)


def _reported(written: Mapping[str, Any] | None) -> ReportedDeletes:
    return ReportedDeletes(written.get("action", "soft")) if written is not None else ReportedDeletes()


def _metadata(node: Node) -> tuple[Metadata, ...]:
    """Of a table that appends changes."""
    if (mode := node.entries.get("mode")) is None or mode.text != "append":
        return ()
    written = node.entries.get("metadata")
    default = definition("table")["properties"]["metadata"]["default"]
    return tuple(plain(written) if written else default)


def _with_statistics(table: TableSpec) -> Layout:
    """The layout with statistics for the columns by which flowctl looks up rows, unless the spec names others.
    Statistics of further columns cost time for each written row and help readers only."""
    layout = table.layout
    if layout.statistics is not None:
        return replace(layout, statistics=tuple(dict.fromkeys((*layout.statistics, *layout.cluster_by))))
    cursor = (table.columns.rename.get(table.cursor.column, table.cursor.column),) if table.cursor else ()
    versions = ("valid_from", "valid_to") if table.mode == "scd2" else ()
    return replace(layout, statistics=tuple(dict.fromkeys((*table.key, *cursor, *versions, *layout.cluster_by))))


def _fractions(written: Mapping[str, Any]) -> dict[str, Any]:
    return {key: fraction(value) if isinstance(value, str) else value for key, value in written.items()}


def _frozen(written: Mapping[str, Any]) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in written.items()}


def _with_secrets(node: Node) -> Any:
    match node.value:
        case dict() as entries:
            return {key: _with_secrets(child) for key, child in entries.items()}
        case Masked() as masked:
            return masked.hidden
        case str() as text:
            return parse_secrets(text, node.mark)
        case value:
            return value
