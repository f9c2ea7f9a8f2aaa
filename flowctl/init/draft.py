"""From a URL or a path to the text of a spec."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, cast

from flowctl import extras
from flowctl.connectors import registry
from flowctl.connectors.base import Connector, OpenContext
from flowctl.connectors.source import HighWatermark, Relation, Source, WatermarkRequest
from flowctl.connectors.survey import Survey, Surveyed
from flowctl.engine import java
from flowctl.engine.session import SAIL
from flowctl.errors import EngineFailed, FlowctlError, StoppedByPolicy, TableError, UsageError
from flowctl.init.check import Refusal, refusals
from flowctl.init.decision import Decision
from flowctl.init.guess import Setting, decide, questions
from flowctl.init.names import plain_name, table_ids
from flowctl.init.place import Place, place_of
from flowctl.init.render import Outline, render
from flowctl.model.table_info import ObjectName, RowEstimate
from flowctl.observe.asking import ask_for_each
from flowctl.resolve import sail
from flowctl.spec.names import ObjectSyntax
from flowctl.spec.schema import object_syntax, target_modes
from flowctl.text import some


@dataclass(frozen=True)
class InitOptions:
    """``source`` and ``to`` as the command line has them; ``to`` None: a folder `lake` beside the spec. ``output`` is
    the file (None: named after the source). ``select`` and ``exclude`` are globs over names of the source."""

    source: str
    to: str | None = None
    output: Path | None = None
    select: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()


@dataclass(frozen=True)
class Proposal:
    """The spec, where it belongs, and what is in it. ``variables`` are environment variables that it refers to and
    that the secrets on the command line belong into."""

    path: Path
    flow: str
    text: str
    decisions: tuple[Decision, ...]
    variables: tuple[str, ...]


def propose(options: InitOptions, refuse_path: Callable[[Path], None]) -> Proposal:
    """Reads the source's catalog, never its rows (except for the newest value of possible cursors, and samples of
    files without types). Writes nothing. ``refuse_path`` is called with the path of the file before the source is."""
    source = place_of(options.source, "source", options.output.parent if options.output else Path())
    path = options.output or Path(f"{source.name}.yaml")
    refuse_path(path)
    flow = plain_name(path.name.partition(".")[0], source.name)
    target = place_of(options.to or str(path.parent / "lake"), "target", path.parent, taken=source.name)
    survey, decisions = _decisions(source, target, path.parent, options)
    outline = Outline(
        flow=flow,
        title="Written by `flowctl init`; # decide: marks what nobody but you knows.",
        source=source,
        target=target,
        syntax=cast(ObjectSyntax, object_syntax(source.type)),
        spark=SAIL if extras.is_installed("pysail") else "",
        views=survey.views,
    )
    text, decisions = _accepted(outline, decisions, path)
    return Proposal(path, flow, text, tuple(decisions), (*source.variables, *target.variables))


def _decisions(source: Place, target: Place, folder: Path, options: InitOptions) -> tuple[Survey, list[Decision]]:
    """Opens both systems, so that one that does not answer is reported before anything is guessed."""
    capabilities, refuses = registry.capabilities(source.type).source, registry.capabilities(target.type).target
    assert capabilities is not None and refuses is not None, "place_of has refused what is no source, or no target"
    with ExitStack() as stack:
        context = OpenContext({}, str(folder.absolute()))
        opened = {one.name: _open(stack, one, context) for one in (source, target)}
        reading = opened[source.name].source
        assert reading is not None, "place_of has refused what is no source"
        survey = reading.survey(lambda object: _is_wanted(object, options))
        if not survey.tables:
            raise _nothing(options, survey.views, is_files=capabilities.position == "files")
        answers = _answers(reading, survey.tables, source)
    setting = Setting(capabilities.position, refuses.refuses_names, "merge" in target_modes(target.type))
    ids = table_ids([one.name or one.object.parts for one in survey.tables])
    decided = [
        decide(id, table, answers.get(table.object, {}), setting) for id, table in zip(ids, survey.tables, strict=True)
    ]
    return survey, decided


def _open(stack: ExitStack, place: Place, context: OpenContext) -> Connector:
    connector = stack.enter_context(registry.open(place.connection, context))
    connector.greet()
    return connector


def _nothing(options: InitOptions, views: Sequence[ObjectName], *, is_files: bool) -> FlowctlError:
    if options.select or options.exclude:
        named = "paths, as in 'orders/*'" if is_files else "tables as the source does, as in 'public.*'"
        return UsageError("no table matches --select and --exclude", hint=f"Name {named}")
    if views:
        hint = f"Name a view in a spec to read it; there are: {some(views)}"
    elif is_files:
        hint = "Check the path. Formats are known by the names of files, as in orders.csv.gz"
    else:
        hint = "Check the URL, and what its user may see"
    return StoppedByPolicy("there is no table to read", hint=hint)


def _is_wanted(object: ObjectName, options: InitOptions) -> bool:
    def matches(globs: Sequence[str]) -> bool:
        names = (str(object), object.parts[-1])
        return any(fnmatchcase(name, glob) for glob in globs for name in names)

    return (not options.select or matches(options.select)) and not matches(options.exclude)


def _answers(
    source: Source, tables: Sequence[Surveyed], place: Place
) -> Mapping[ObjectName, Mapping[str, HighWatermark]]:
    """The high watermarks that :func:`questions` asks for, all together; one that fails is a failure of its column."""
    requests = {
        (table.object, column.name): WatermarkRequest(
            Relation(table.object), table.info, cursor=column, null_rows=True, estimate="none"
        )
        for table in tables
        if table.info is not None
        for column in questions(table)
    }
    keys = {str(at): key for at, key in enumerate(requests)}

    def ask(names: Sequence[str]) -> Mapping[str, HighWatermark]:
        return source.high_watermarks({name: requests[keys[name]] for name in names})

    found: dict[ObjectName, dict[str, HighWatermark]] = {}
    for name, answer in ask_for_each(ask, list(keys), place.connection.mark).items():
        object, column = keys[name]
        if isinstance(answer, TableError):
            answer = HighWatermark(None, RowEstimate(), failure=answer)
        if isinstance(answer, FlowctlError):
            raise answer
        found.setdefault(object, {})[column] = answer
    return found


def _accepted(outline: Outline, decisions: list[Decision], path: Path) -> tuple[str, list[Decision]]:
    """The text that `plan` takes, with the decisions behind it. Whatever it refuses is changed: columns first, then
    tables, so that this ends."""
    given = {one.name: one.given for one in (outline.source, outline.target) if one.given}
    while not all(one.left_out for one in decisions):
        draft = render(outline, decisions)
        refused = refusals(draft, path, given)
        by_sail = [one.reason for one in refused.values() if one.by_sail]
        if outline.spark and by_sail and _has_java():
            outline = replace(outline, spark="", not_on_sail=by_sail[0].removesuffix(f". {sail.HINT}"))
            continue
        changed = [_changed(one, refused.get(one.id)) for one in decisions]
        if changed == decisions:
            return draft.text, decisions
        decisions = changed
    first = decisions[0]
    raise StoppedByPolicy(f"no table can be moved; {first.object}: {first.left_out}", hint="Select other tables")


def _changed(decision: Decision, refused: Refusal | None) -> Decision:
    """Columns that nothing depends on are left out, otherwise the table. A table that the flow has written before
    stays, with a question."""
    if refused is None or decision.left_out:
        return decision
    if refused.is_known:
        asked = refused.reason in decision.decide
        return decision if asked else replace(decision, decide=(*decision.decide, refused.reason))
    back = {new: old for old, new in decision.rename.items()}
    columns = [back.get(name, name) for name in refused.columns]
    needed = {*(back.get(name, name) for name in decision.key), decision.cursor, *decision.exclude}
    if columns and not needed & set(columns):
        ask = f"left out, as the target does not take them: {some(columns)}. {refused.reason}"
        rename = {old: new for old, new in decision.rename.items() if old not in columns}
        format, excluded = _without_columns(decision.format, columns)
        exclude = (*decision.exclude, *excluded)
        return replace(decision, exclude=exclude, rename=rename, format=format, decide=(*decision.decide, ask))
    return replace(decision, left_out=refused.reason)


def _without_columns(format: Mapping[str, Any], columns: Sequence[str]) -> tuple[Mapping[str, Any], Sequence[str]]:
    """``format`` without those of ``columns`` that its schema need not name, and the rest: what a schema that `init`
    wrote does not name is not read."""
    schema = format.get("schema", {})
    kept = {name: kind for name, kind in schema.items() if name not in columns}
    if not kept or kept == schema:
        return format, columns
    return {**format, "schema": kept}, [name for name in columns if name not in schema]


def _has_java() -> bool:
    try:
        java.find()
    except EngineFailed:
        return False
    return True
