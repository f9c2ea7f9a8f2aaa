"""What only replication needs to know of a table, and the problems that come of it: how rows are identified, and the
tables above and below it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from flowctl.connectors.postgres import catalog
from flowctl.connectors.postgres.changes.partitions import Below, below
from flowctl.connectors.postgres.columns import quoted
from flowctl.connectors.postgres.publications import REPLICA_IDENTITY, identify_all_by_all_columns
from flowctl.connectors.stream import StreamProblem
from flowctl.model.table_info import ObjectName, TableInfo
from flowctl.spec.spec import StreamSpec
from flowctl.text import some

if TYPE_CHECKING:
    import psycopg


@dataclass(frozen=True)
class Identified:
    """A table or partition, quoted, and the columns that the log has of a row before its change (empty: the server
    refuses updates and deletions once it is published). ``is_whole``: all columns."""

    name: str
    columns: Sequence[str]
    is_whole: bool


@dataclass(frozen=True)
class Facts:
    """``identity`` are the columns of its own replica identity, ``hides_rows`` whether policies may hide rows from this
    user. ``below`` are the tables that hold rows of it, and ``above`` those that it is a partition of. A deferrable key
    may be violated within a statement or a transaction."""

    schema: str
    name: str
    kind: str
    is_logged: bool
    letter: str
    identity: tuple[str, ...]
    is_owned: bool
    has_primary_key: bool
    hides_rows: bool
    above: tuple[tuple[str, str], ...]
    immediate_keys: tuple[tuple[str, ...], ...]
    deferrable_keys: tuple[tuple[str, ...], ...]
    below: tuple[Below, ...] = ()

    @property
    def table(self) -> str:
        return f"{quoted(self.schema)}.{quoted(self.name)}"

    @property
    def identified(self) -> tuple[Identified, ...]:
        """The table, and its partitions: those have replica identities of their own, by which their rows are logged,
        and ALTER TABLE of the table leaves them as they are."""
        partitions = [one for one in self.below if self.kind == "p" and not one.is_foreign]
        return (
            Identified(self.table, self.identity, self.letter == "f"),
            *(Identified(one.name, one.identity, one.identifies_by_all) for one in partitions),
        )

    @property
    def known(self) -> tuple[str, ...]:
        """The columns that are known of every row before its change."""
        return tuple(name for name in self.identity if all(name in one.columns for one in self.identified))


def facts_of(connection: psycopg.Connection[Any], infos: Mapping[ObjectName, TableInfo]) -> dict[ObjectName, Facts]:
    oids = {int(info.identity.rpartition("/")[2]): object for object, info in infos.items()}
    rows = connection.execute(_FACTS, [list(oids)]).fetchall()
    others = below(connection, list(oids))
    return {
        oids[oid]: Facts(
            schema=schema,
            name=name,
            kind=kind,
            is_logged=is_logged,
            letter=letter,
            identity=tuple(identity or ()),
            is_owned=is_owned,
            has_primary_key=bool(infos[oids[oid]].primary_key),
            hides_rows=bool(infos[oids[oid]].extra["row_security"]),
            above=tuple((space, table) for space, table in above),
            immediate_keys=tuple(tuple(key) for is_immediate, key in keys if is_immediate),
            deferrable_keys=tuple(tuple(key) for is_immediate, key in keys if not is_immediate),
            below=tuple(others.get(oid, ())),
        )
        for oid, schema, name, kind, is_logged, letter, identity, is_owned, above, keys in rows
    }


_FACTS = f"""
    SELECT c.oid::bigint, s.nspname, c.relname, c.relkind::text, c.relpersistence = 'p', c.relreplident::text,
        {REPLICA_IDENTITY},
        pg_has_role(c.relowner, 'USAGE'),
        (SELECT coalesce(json_agg(json_build_array(n.nspname, r.relname)), '[]')
         FROM pg_partition_ancestors(c.oid) a JOIN pg_class r ON r.oid = a.relid
         JOIN pg_namespace n ON n.oid = r.relnamespace WHERE a.relid <> c.oid),
        (SELECT coalesce(json_agg(json_build_array(i.indimmediate, {catalog.INDEX_KEY})), '[]')
         FROM pg_index i
         WHERE i.indrelid = c.oid AND i.indisunique AND i.indisvalid AND i.indpred IS NULL AND i.indexprs IS NULL)
    FROM pg_class c JOIN pg_namespace s ON s.oid = c.relnamespace WHERE c.oid = ANY (%s::oid[])
"""


def identity_problem(object: ObjectName, facts: Facts) -> Iterator[StreamProblem]:
    """Publishing such a table would make the application's own updates and deletes fail."""
    lacking = [one.name for one in facts.identified if not one.columns]
    if not lacking:
        return
    what = f"{object} has no replica identity, so its updates and deletions name no row"
    if facts.table not in lacking:
        what = f"partitions of {object} have no replica identity, so updates and deletions name no row: {some(lacking)}"
    statements = identify_all_by_all_columns(facts.table, lacking)
    if facts.has_primary_key and facts.letter == "d" and not facts.identity:
        what += ": its primary key is deferrable"
        how = f"Add the key again without DEFERRABLE; with mode append or another `key`: {statements}"
        yield StreamProblem(what, how, object)
    else:
        yield StreamProblem(what, f"Add a primary key, or: {statements}", object)


def problems_below(object: ObjectName, facts: Facts, stream: StreamSpec) -> Iterator[StreamProblem]:
    """A read of the table has the rows of these tables too, but the stream not their changes."""
    apart = f"Exclude {object}, and read it with an entry of its own: `from: {stream.connection}:{object}`"
    for one in facts.below:
        if facts.kind == "r":
            what = f"{object} has the rows of {one.name} by inheritance, but not their changes"
            yield StreamProblem(what, apart, object)
        elif one.is_foreign:
            what = f"the partition {one.name} of {object} lies on another server, whose log has its changes"
            yield StreamProblem(what, apart, object)
        elif not one.is_logged:
            what = f"the partition {one.name} of {object} is unlogged: its changes are not in the log"
            yield StreamProblem(what, f"ALTER TABLE {one.name} SET LOGGED", object)
