"""Every change of a definition, in one table, and what each must make of a target: the model that the targets are
compared with.

All changes of one target are tables of one flow: three runs show them all. Each source has rows 1 to 5; between the
runs one is changed, one is new and one is deleted.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

Mode = Literal["append", "truncate", "merge", "scd2"]
MODES: tuple[Mode, ...] = ("append", "truncate", "merge", "scd2")
#: A source's columns; ``code`` and ``id`` say the same.
COLUMNS = ("id", "code", "note", "other", "clock", "updated_at")


@dataclass(frozen=True)
class Row:
    id: int
    note: str
    clock: int


@dataclass(frozen=True)
class Definition:
    """A table's entry without `from`, in parts; the model knows the same parts."""

    mode: Mode
    key: str = "id"
    cursor: str | None = "updated_at"
    deletes: Literal["soft", "hard"] | None = None
    least: int = 0
    columns: str = ""
    value: str = "note"
    names: tuple[str, ...] = COLUMNS
    source: str = ""
    target: str = ""

    def yaml(self, source: str, target: str) -> str:
        parts = [f"from: src:{self.source or source}", f"to: 'dst:{target}{self.target}'", f"mode: {self.mode}"]
        if self.mode in ("merge", "scd2"):
            parts.append(f"key: [{self.key}]")
        if self.mode == "scd2":
            parts.append("scd2: {valid_from: updated_at}")
        if self.cursor and self.mode != "truncate":
            parts.append(f"cursor: {{column: {self.cursor}}}")
        if self.deletes:
            action = "" if self.mode == "scd2" else f", action: {self.deletes}"
            parts.append(f"deletes: {{detect: missing_keys{action}}}, guard: {{max_deleted: 60%}}")
        if self.least:
            parts.append(f"where: id >= {self.least}")
        if self.columns:
            parts.append(f"columns: {self.columns}")
        if self.columns and self.mode == "truncate":  # what it leaves out would become null
            parts.append('on_schema_change: {dropped_column: "null"}')
        return "{" + ", ".join(parts) + "}"

    @property
    def own(self) -> tuple[str, ...]:
        """flowctl's own columns in this target."""
        if self.mode == "scd2":
            return ("valid_from", "valid_to", "is_current", "row_hash")
        return ("_deleted_at",) if self.mode == "merge" and self.deletes == "soft" else ()


#: Why nothing but a full refresh is right, as `state set` says it; empty where the table can continue.
Refused = str


@dataclass(frozen=True)
class Change:
    """``stops``: the plan asks which remedy is meant. ``refused`` is why the second one is not offered."""

    name: str
    before: Definition
    after: Definition
    stops: bool = True
    needs_jvm: bool = False
    refused: Refused = ""


def _of_mode(mode: Mode) -> Definition:
    return Definition(mode, cursor=None if mode == "truncate" else "updated_at")


def _modes() -> Iterator[Change]:
    for before in MODES:
        for after in MODES:
            if before != after:
                yield Change(f"{before}_to_{after}", _of_mode(before), _of_mode(after), refused=_refused(before, after))


def _refused(before: Mode, after: Mode) -> Refused:
    if after == "scd2":
        return "no history to continue"
    if before == "scd2" and after in ("append", "merge"):
        return "holds a history"
    if after == "merge":
        return "may hold several rows of one key"
    return "is not known" if (before, after) == ("truncate", "append") else ""


def _columns(mode: Mode) -> Iterator[Change]:
    before = _of_mode(mode)
    without = tuple(name for name in COLUMNS if name != "other")
    renamed = tuple("remark" if name == "note" else name for name in COLUMNS)
    yield Change(f"{mode}_exclude", before, _with(before, columns="{exclude: [other]}", names=without))
    yield Change(
        f"{mode}_rename", before, _with(before, columns="{rename: {note: remark}}", names=renamed, value="remark")
    )
    yield Change(
        f"{mode}_add",
        before,
        _with(before, columns="{add: {twice: clock * 2}, types: {twice: bigint}}", names=(*COLUMNS, "twice")),
        needs_jvm=True,
    )


def _with(definition: Definition, **parts: object) -> Definition:
    return Definition(**{**vars(definition), **parts})  # type: ignore[arg-type]


_MERGE, _APPEND, _SCD2, _TRUNCATE = (_of_mode(mode) for mode in ("merge", "append", "scd2", "truncate"))
_SOFT = _with(_MERGE, deletes="soft")

CHANGES: tuple[Change, ...] = (
    *_modes(),
    Change("merge_key", _MERGE, _with(_MERGE, key="code"), refused='the new key lacks "id"'),
    Change("merge_wider_key", _MERGE, _with(_MERGE, key="id, code")),
    Change("scd2_key", _SCD2, _with(_SCD2, key="code"), refused="has another key"),
    Change("scd2_key_order", _with(_SCD2, key="id, code"), _with(_SCD2, key="code, id"), stops=False),
    Change("merge_cursor", _MERGE, _with(_MERGE, cursor="clock")),
    Change("merge_no_cursor", _MERGE, _with(_MERGE, cursor=None)),
    Change("merge_gets_cursor", _with(_MERGE, cursor=None), _MERGE),
    Change("append_cursor", _APPEND, _with(_APPEND, cursor="clock"), refused="is not known"),
    Change("scd2_cursor", _SCD2, _with(_SCD2, cursor="clock")),
    Change("merge_soft", _MERGE, _SOFT, stops=False),
    Change("merge_hard", _MERGE, _with(_MERGE, deletes="hard"), stops=False),
    Change("merge_soft_to_hard", _SOFT, _with(_MERGE, deletes="hard"), stops=False),
    Change("merge_soft_to_none", _SOFT, _MERGE, stops=False),
    Change("truncate_to_merge_soft", _TRUNCATE, _SOFT, refused="may hold several rows of one key"),
    Change("truncate_to_scd2_deletes", _TRUNCATE, _with(_SCD2, deletes="soft"), refused="no history to continue"),
    Change("append_to_merge_soft", _APPEND, _SOFT, refused="may hold several rows of one key"),
    Change("scd2_deletes", _SCD2, _with(_SCD2, deletes="soft"), stops=False),
    *(Change(f"{mode}_where", _of_mode(mode), _with(_of_mode(mode), least=3)) for mode in MODES),
    *(change for mode in MODES for change in _columns(mode)),
    Change("merge_source", _MERGE, _with(_MERGE, source="elsewhere")),
    Change("truncate_source", _TRUNCATE, _with(_TRUNCATE, source="elsewhere")),
    *(Change(f"{mode}_target", _of_mode(mode), _with(_of_mode(mode), target="_2")) for mode in MODES),
)


Value = str | None


@dataclass
class Model:
    """What a target must hold: rows that count now, as (id, note), and of a history all versions by (id, clock)."""

    rows: list[tuple[int, Value]] = field(default_factory=list)
    versions: dict[tuple[int, int], Value] = field(default_factory=dict)
    newest: int = 0

    def continued(self, before: Definition, after: Definition) -> None:
        """A value that gets a column of another name is not in the rows that are there."""
        if before.value != after.value:
            self.rows = [(id, None) for id, _ in self.rows]
            self.versions = dict.fromkeys(self.versions)

    def applied(self, definition: Definition, source: list[Row], *, refresh: bool, anew: bool = False) -> None:
        """One run. ``refresh`` reads all again, ``anew`` also replaces what is there."""
        taken = [row for row in source if row.id >= definition.least]
        news = taken if refresh else [row for row in taken if definition.cursor is None or row.clock >= self.newest]
        last, self.newest = self.newest, max([self.newest, *(row.clock for row in source)])
        if anew:
            self.rows, self.versions = [], {}
        match definition.mode:
            case "truncate":
                self.rows = [(row.id, row.note) for row in taken]
            case "append":
                self.rows += [(row.id, row.note) for row in news if refresh or row.clock > last]
            case "merge":
                self.rows = list(self._live(definition, {row.id: row.note for row in news}, taken).items())
            case "scd2":
                current = dict(self.rows)
                for (
                    row
                ) in news:  # a version that is read again keeps what it began with: null in a column that came later
                    if current.get(row.id, self) != row.note:
                        self.versions.setdefault((row.id, row.clock), row.note)
                seen = {row.id: self.versions.get((row.id, row.clock), row.note) for row in news}
                self.rows = list(self._live(definition, seen, taken).items())

    def _live(self, definition: Definition, news: dict[int, Value], taken: list[Row]) -> dict[int, Value]:
        there = {row.id for row in taken}
        rows = dict(self.rows) | news
        return {id: note for id, note in rows.items() if id in there or definition.deletes is None}
