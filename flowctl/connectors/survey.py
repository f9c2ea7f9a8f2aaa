"""What a source reports about its tables to `flowctl init`, beyond what a plan needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flowctl.errors import AccessDenied, FlowctlError, TransientError
from flowctl.model.table_info import ObjectName, TableInfo

if TYPE_CHECKING:
    from flowctl.connectors.source import Source


@dataclass(frozen=True)
class Index:
    """An index over all rows of a table. ``columns`` are in the order of the index; indexes over expressions are not
    listed. ``is_unique``: no two rows without nulls have the same values."""

    columns: tuple[str, ...]
    is_unique: bool = False


@dataclass(frozen=True)
class Details:
    """What the catalog knows of one table. ``indexes`` None: the source does not report them. ``numbered`` are columns
    that the system fills with increasing numbers. ``unreadable`` are the columns that this user may not read.
    ``refused`` is why this user cannot read the table at all, empty if that is not known."""

    indexes: tuple[Index, ...] | None = None
    numbered: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    refused: str = ""


@dataclass(frozen=True)
class Surveyed:
    """One table that a spec may read. ``info`` is None if it could not be described: ``details.refused`` says why.
    ``format`` is its `format` in the spec, for sources of files. ``is_many``: it is a pattern of several files.
    ``name`` is what people call it, by parts, if that is not ``object``. ``notes`` are what a person has to decide,
    each on one line."""

    object: ObjectName
    info: TableInfo | None
    details: Details = Details()
    format: Mapping[str, Any] = field(default_factory=dict, hash=False)
    is_many: bool = False
    name: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Survey:
    """Everything that matches. ``views`` are read only if a spec names them."""

    tables: tuple[Surveyed, ...]
    views: tuple[ObjectName, ...] = ()


Wanted = Callable[[ObjectName], bool]


def survey_tables(source: Source, objects: Sequence[ObjectName], views: Iterable[ObjectName]) -> Survey:
    """Describes all ``objects`` together. If that fails, each alone, so that only the faulty ones are refused."""
    infos, refused = _described(source, objects)
    details = source.details([object for object in objects if infos.get(object) is not None])
    known = {**details, **{object: Details(refused=why) for object, why in refused.items()}}
    tables = (Surveyed(object, infos.get(object), known.get(object, Details())) for object in objects)
    return Survey(tuple(tables), tuple(views))


def _described(
    source: Source, objects: Sequence[ObjectName]
) -> tuple[dict[ObjectName, TableInfo | None], dict[ObjectName, str]]:
    from flowctl.connectors.source import Relation

    if not objects:
        return {}, {}
    try:
        found = source.describe([Relation(object) for object in objects])
        infos = {object: found[Relation(object)] for object in objects}
        return infos, {object: "it was dropped meanwhile" for object, info in infos.items() if info is None}
    except (AccessDenied, TransientError):
        raise
    except FlowctlError as error:
        if len(objects) == 1:
            return {objects[0]: None}, {objects[0]: error.message}
    alone = [_described(source, [object]) for object in objects]
    return (
        {object: info for infos, _ in alone for object, info in infos.items()},
        {object: why for _, refused in alone for object, why in refused.items()},
    )
