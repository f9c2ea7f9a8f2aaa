"""Second pass: checks each merged table against what its mode, its source and its target support."""

from __future__ import annotations

from collections.abc import Mapping

from flowctl.spec import build
from flowctl.spec.details import check_details
from flowctl.spec.findings import Findings
from flowctl.spec.names import is_pattern, split_reference
from flowctl.spec.node import Node, leaves, without
from flowctl.spec.references import OF_TOPICS, Sources, source_of, target_of
from flowctl.spec.schema import (
    check_table,
    connector_schema,
    connector_types,
    definition,
    forbidden,
    modes_with,
    object_syntax,
    role,
    source_modes,
    target_modes,
)
from flowctl.spec.spec import ObjectSource, Source, SqlSource, StreamTable, TableSpec, TargetRef, TopicSource
from flowctl.spec.topics import check_topic, check_written
from flowctl.spec.written_files import check_written_files


def check_tables(
    entries: Mapping[str, Node], sources: Sources, findings: Findings
) -> tuple[dict[str, Node], tuple[TableSpec, ...]]:
    """The effective entries (without inherited keys that cannot be used) and the tables without errors."""
    checking = [_Checking(id, node, sources, findings) for id, node in entries.items()]
    tables = [check.table() for check in checking]
    return {check.id: check.node for check in checking}, tuple(table for table in tables if table)


class _Checking:
    """One table, from entry to value."""

    def __init__(self, id: str, node: Node, sources: Sources, findings: Findings) -> None:
        self.id = id
        self.node = node
        self.sources = sources
        self.connections = sources.connections
        self.findings = findings
        self.label = f"tables.{id}"

    def table(self) -> TableSpec | None:
        """The value, or None with at least one error."""
        errors_before = len(self.findings.diagnostics)
        source, target, letters = self._source(), self._target(), self._letters()
        roles = self._roles(source, target)
        self._check_appends_once(source, roles)
        for role_name, using in roles.items():
            self._drop_unusable(role_name, using)
        shape = check_table(self.node, self.label, roles)
        self.findings.extend(shape)
        details = Findings()
        check_details(self.node, details)
        if isinstance(source, TopicSource):
            check_topic(self.node, details)
        check_written(self.node, details)
        check_written_files(self.node, details)
        broken = {found.mark for found in shape}
        self.findings.extend(found for found in details.diagnostics if found.mark not in broken)
        if source:
            self._check_pattern(source)
        if len(self.findings.diagnostics) > errors_before or source is None or target is None:
            return None
        return build.table(self.id, self.node, source, target, letters)

    def _source(self) -> Source | None:
        node = self.node.entries.get("from")
        return source_of(node, self.sources, self.findings) if node and _well_formed(node, "from") else None

    def _target(self) -> TargetRef | None:
        node = self.node.entries.get("to")
        return target_of(node, self.connections, self.findings) if node and _well_formed(node, "to") else None

    def _letters(self) -> TargetRef | None:
        node = self.node.get("dead_letters.to")
        if node is None or not _well_formed(node, "letters_to"):
            return None
        found = target_of(node, self.connections, self.findings, "${id}__dead_letters")
        type = self.connections[found.connection] if found else None
        if found and type and role(type, "target") is None:
            self._refuse_target(node, type, found.connection)
        return found

    def _roles(self, source: Source | None, target: TargetRef | None) -> dict[str, str]:
        """The definitions that apply to this table, each with the wording for an error about it."""
        roles: dict[str, str] = {}
        mode = self.node.entries.get("mode")
        is_streamed = isinstance(source, StreamTable)
        if mode and mode.text in definition("modes"):
            role_name = "stream_mode" if is_streamed or self._may_be_streamed() else "mode"
            roles[f"{role_name}:{mode.text}"] = f"with mode {mode.text}"
        if source is not None:
            match source:
                case StreamTable():
                    roles["stream_table"] = "when reading a change stream"
                case TopicSource():
                    roles["topic_table"] = "when reading a topic"
                case _:
                    roles["polled_table"] = "without a change stream"
        match source:
            case SqlSource():
                roles["sql_source"] = "with `from: {sql: …}`"
            case None:
                pass
            case _:
                type = self.connections[source.connection]
                roles[f"source:{type}"] = f"when reading from `{source.connection}` ({type})"
                self._check_mode_of_source(str(type), source.connection, mode)
        type = self.connections[target.connection] if target else None
        if is_streamed and mode and mode.text == "truncate":
            hint = "Use append, merge or scd2; or read the connection itself to replace the whole content in each run"
            self.findings.error(mode, "mode truncate cannot be used with a change stream", hint, "mode-of-stream")
        if target and type and self._can_write(type, target.connection, mode):
            roles[f"target:{type}"] = f"when writing to `{target.connection}` ({type})"
        return roles

    def _check_mode_of_source(self, type: str, connection: str, mode: Node | None) -> None:
        able = source_modes(type)
        if mode and mode.text in definition("modes") and mode.text not in able:
            what = f"mode {mode.text} cannot be used when reading from `{connection}` ({type}) in this version"
            self.findings.error(mode, what, f"Use {' or '.join(able)}", "mode-of-source")

    def _may_be_streamed(self) -> bool:
        """Whether `from` names neither a connection nor anything else that is known: perhaps a stream."""
        node = self.node.entries.get("from")
        return node is not None and bool(node.text) and split_reference(node.text)[0] not in self.connections

    def _can_write(self, type: str, connection: str, mode: Node | None) -> bool:
        target = connector_schema(type)["$defs"].get("target", {})
        able = [other for other in connector_types() if role(other, "target")]
        if mode and mode.text in definition("modes") and mode.text not in target_modes(type):
            others = [other for other in able if mode.text in target_modes(other)]
            hint = target.get("x-instead", f"Types that can: {', '.join(others)}")
            what = f"`{connection}` ({type}) cannot take mode {mode.text}"
            self.findings.error(mode, what, hint, "mode-of-target")
            return False
        if role(type, "target") is None:
            self._refuse_target(self.node.entries["to"], type, connection)
            return False
        return True

    def _refuse_target(self, node: Node, type: str, connection: str) -> None:
        able = [other for other in connector_types() if role(other, "target")]
        what = f"writing to `{connection}` ({type}) is not in this version"
        hint = f"Write to a connection of type {', '.join(able)}"
        self.findings.error(node, what, hint, "not-in-this-version")

    def _drop_unusable(self, role_name: str, using: str) -> None:
        """A key that cannot be used is an error where the entry itself sets it, and dropped where it is inherited."""
        for path in forbidden(role_name):
            found = self.node.get(path)
            if found is None:
                continue
            if _own(found) and found.value != NO_CURSOR:
                modes = modes_with(path) if role_name.startswith(("mode:", "stream_mode:")) else []
                hint = f"Remove it, or use mode {' or '.join(modes)}" if modes else "Remove it"
                self.findings.error(found.place, f"`{path}` cannot be used {using}", hint, "unusable-key")
            self.node = without(self.node, path)

    def _check_appends_once(self, source: Source | None, roles: Mapping[str, str]) -> None:
        """Without a cursor, append writes the same rows in every run. Files are identified by their names."""
        mode, cursor = self.node.entries.get("mode"), self.node.entries.get("cursor")
        if source is None or mode is None or mode.text != "append" or (cursor is not None and _says_so(cursor, source)):
            return
        if any(name.startswith(("source:", "stream_table")) and "cursor" in forbidden(name) for name in roles):
            return
        again = "its whole result" if isinstance(source, SqlSource) else "all rows"
        none = f"`cursor: none` to append {again} in every run"
        either = f"Add `cursor: {{column: …}}` to append what is new, or write {none}"
        hint = f"Write {none}" if isinstance(source, SqlSource) else either
        what = f"`{self.id}` appends and has no cursor: every run would append {again} again"
        self.findings.error(mode, what, hint, "missing-key")

    def _check_pattern(self, source: Source) -> None:
        """A pattern in `from` and a placeholder in the id belong together, except for many files in one table."""
        at = self.node.entries["from"]
        is_glob = isinstance(source, ObjectSource) and source.is_glob
        is_of_many = is_glob and object_syntax(str(self.connections[source.connection])) != "path"  # type: ignore[union-attr]
        has_views = is_of_many and not isinstance(source, StreamTable | TopicSource)
        if is_of_many and not is_pattern(self.id):
            hint = f'Put a placeholder into the id, as in "{self.id}_${{table}}", or name one table'
            self.findings.error(at, f"`{self.id}` reads many tables into one", hint, "pattern-without-placeholder")
        if is_pattern(self.id) and not isinstance(source, ObjectSource):
            hint = "Read objects that match a pattern, as in pg:public.*, or remove the placeholder"
            what = "a query creates one table, but the id has a placeholder"
            self.findings.error(at, what, hint, "placeholder-in-id")
        if (written := self.node.entries.get("include_views")) and is_glob and not has_views:
            hint = "Remove it, or read tables of a database by a pattern"
            self.findings.error(written.place, f"`include_views` has no meaning for {source}", hint, "unusable-key")
        for key in ("exclude", "include_views", "allow_none"):
            written = self.node.entries.get(key)
            if written and _own(written) and not is_glob:
                hint = "Remove it, or write a pattern in `from`"
                what = f"`{key}` has no meaning without a pattern in `from`"
                self.findings.error(written.place, what, hint, "unusable-key")


#: The value of `cursor:` for a table that every run reads in full.
NO_CURSOR = "none"


def _says_so(cursor: Node, source: Source) -> bool:
    """Whether ``cursor`` settles how the table appends. A SQL table drops an inherited cursor; a cursor of its own is a
    separate error."""
    return cursor.value == NO_CURSOR or not isinstance(source, SqlSource) or _own(cursor)


def _own(node: Node) -> bool:
    """Whether the entry itself sets any part of ``node``."""
    return any(not leaf.origin for _, leaf in leaves(node))


def _is_given(name: str, child: Node) -> bool:
    if name in OF_TOPICS:
        return True
    if name == "start" and child.entries:
        return all(key.isdecimal() and type(one.value) is int and one.value >= 0 for key, one in child.entries.items())
    return isinstance(child.value, str) and bool(child.value)


def _well_formed(node: Node, key: str) -> bool:
    """Whether the schema accepts the shape of `from` or `to`: only then are they parsed."""
    if isinstance(node.value, str):
        return bool(node.value)
    known = definition(key)["then"]["properties"]
    has_all = all(name in node.entries for name in definition(key)["then"].get("required", ()))
    return (
        has_all
        and bool(node.entries)
        and all(name in known and _is_given(name, child) for name, child in node.entries.items())
    )
