"""What a statement in the log means for the tables of a stream.

With `binlog_format = ROW` rows are logged as rows, and statements are DDL or the frame of a transaction. A statement
that changes rows is from a session that has chosen another format: nobody can tell from it which rows it has changed.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from flowctl.connectors.mysql.changes.altered import alterations, drops_primary_key
from flowctl.connectors.mysql.changes.events import Query

#: ``emptied``: all rows of the table are gone. ``replaced``: it has other rows, which the log does not have.
#: ``altered``: some of its columns have ended. ``unlogged``: rows were changed, of unknown tables if none is named.
#: ``unkeyed``: it has lost its primary key. ``unclear``: DDL that cannot be read.
What = Literal["begin", "end", "other", "emptied", "replaced", "altered", "unkeyed", "unlogged", "unclear"]

_FRAME: dict[str, What] = {
    "BEGIN": "begin", "COMMIT": "end", "ROLLBACK": "end", "SAVEPOINT": "other", "RELEASE": "other", "SET": "other",
    "FLUSH": "other", "ANALYZE": "other", "OPTIMIZE": "other", "REPAIR": "other", "GRANT": "other", "REVOKE": "other",
    "USE": "other", "LOCK": "other", "UNLOCK": "other", "KILL": "other", "CHECK": "other", "INSTALL": "other",
    "UNINSTALL": "other", "#": "other", "START": "begin", "RESET": "other", "PURGE": "other", "CACHE": "other",
    "BACKUP": "other",
}  # fmt: skip
_DDL = ("CREATE", "ALTER", "DROP", "RENAME", "TRUNCATE")
_ROWS = ("INSERT", "UPDATE", "DELETE", "REPLACE", "SELECT", "WITH", "VALUES", "(")
#: What is between the verb and the table, and what follows the table of a statement that names no other.
_MODIFIERS = ("LOW_PRIORITY", "DELAYED", "HIGH_PRIORITY", "QUICK", "IGNORE", "INTO", "FROM")
_BEHIND_TABLE = ("(", "SET", "VALUES", "VALUE", "WHERE")
#: The database of the server's own tables, which have no triggers. Services such as RDS write there as statements.
_SERVERS_OWN = "mysql"
#: What ALTER TABLE does to rows without logging them.
_ALTERS_ROWS = {
    ("TRUNCATE", "PARTITION"), ("DROP", "PARTITION"), ("EXCHANGE", "PARTITION"), ("CONVERT", "PARTITION"),
    ("CONVERT", "TABLE"), ("IMPORT", "TABLESPACE"), ("DISCARD", "TABLESPACE"), ("IMPORT", "PARTITION"),
    ("DISCARD", "PARTITION"),
}  # fmt: skip
#: What CREATE TABLE has of rows in values. Those of MariaDB have no ROW; with other words, VALUES is a partition's.
_HAS_ROWS = {("VALUES", "ROW"), ("VALUES", "(")}
#: What is before the name of a table that exchanges rows with the altered one.
_BEFORE_OTHER = {("WITH", "TABLE"), ("CONVERT", "TABLE"), ("TO", "TABLE")}
_EXECUTABLE = re.compile(r"/\*M?!\d*(.*?)\*/", re.DOTALL)


@dataclass(frozen=True)
class Meaning:
    """``tables`` are database and name; an empty name stands for all tables of the database. ``columns`` are those that
    have ended, ``converted`` those with values that a session may have forced into them; ``converts_texts``: into all
    with texts."""

    what: What
    tables: tuple[tuple[str, str], ...] = ()
    columns: tuple[str, ...] = ()
    converted: tuple[str, ...] = ()
    converts_texts: bool = False


@dataclass(frozen=True)
class _Word:
    """``text`` in capitals unless ``is_quoted``."""

    text: str
    is_quoted: bool
    raw: str


def meanings(query: Query) -> list[Meaning]:
    """What the statement does; several things for one that renames tables. Raises ``ValueError`` or ``IndexError`` for
    DDL that cannot be read."""
    try:
        words = _words(query.text)
    except ValueError:
        if query.text.split()[0].upper() in _DDL:
            raise
        return [Meaning("unlogged")]
    if [word.text for word in words[:2]] == ["SET", "STATEMENT"]:
        texts = [word.text for word in words]
        words = words[texts.index("FOR") + 1 :] if "FOR" in texts else []
    if not words:
        return [Meaning("other")]
    first = words[0].text
    if first == "XA":
        return [Meaning("end" if words[1].text in ("COMMIT", "ROLLBACK") else "begin")]
    if first == "ROLLBACK" and any(word.text == "TO" for word in words[1:3]):
        return [Meaning("other")]
    if first == "ANALYZE" and words[1].text in _ROWS:
        return [Meaning("unlogged")]
    if first in _FRAME:
        return [Meaning(_FRAME[first])]
    if first not in _DDL:
        return [Meaning("other" if _is_servers_own(words, query.database) else "unlogged")]
    return list(_changes_of_tables(words, query.database, is_strict=query.is_strict)) or [Meaning("other")]


def _changes_of_tables(words: Sequence[_Word], database: str, *, is_strict: bool) -> Iterator[Meaning]:
    texts = ["" if word.is_quoted else word.text for word in words]
    replaces = texts[:3] == ["CREATE", "OR", "REPLACE"]
    kind = texts[3 if replaces else 1 : 4 if replaces else 2]  # not TEMPORARY: nothing of the source is changed then
    is_table, is_database = kind in (["TABLE"], ["TABLES"]), kind in (["DATABASE"], ["SCHEMA"])
    match texts[0]:
        case "TRUNCATE":
            yield Meaning("emptied", tuple(_names(words, 2 if kind == ["TABLE"] else 1, database)))
        case "DROP" if is_database:
            yield Meaning("emptied", ((_after_conditions(words, 2).raw, ""),))
        case "DROP" if is_table:
            yield Meaning("emptied", tuple(_names(words, 2, database)))
        case "DROP" if kind == ["INDEX"] and "ON" in texts and words[texts.index("ON") - 1].raw.upper() == "PRIMARY":
            yield Meaning("unkeyed", tuple(_names(words, texts.index("ON") + 1, database))[:1])
        case "CREATE" if replaces and is_database:
            yield Meaning("emptied", ((words[4].raw, ""),))
        case "CREATE" if is_table:
            table = tuple(_names(words, 4 if replaces else 2, database))[:1]
            if _has_query(texts):  # rows come with the columns alone
                yield Meaning("unlogged", table)
            if replaces:
                yield Meaning("emptied", table)
        case "RENAME" if is_table:
            names = _renamed(words, database)
            yield Meaning("replaced", tuple(names))
        case "ALTER" if "TABLE" in texts[1:4]:  # behind ONLINE and IGNORE; it is no name without quotes
            at = texts.index("TABLE") + 1
            table = tuple(_names(words, at, database))[:1]
            if "IGNORE" in texts[1:at] or _ALTERS_ROWS & {*itertools.pairwise(texts)}:
                yield Meaning("replaced", (*table, *_others(words, texts, at, database)))
            if renamed := _new_name(words, at, database):
                yield Meaning("replaced", (*table, renamed))
            if drops_primary_key(words[at:]):
                yield Meaning("unkeyed", table)
            found = alterations(words[at:], is_strict=is_strict)
            if found.ended or found.converted or found.converts_texts:
                yield Meaning("altered", table, found.ended, found.converted, found.converts_texts)


def _has_query(texts: Sequence[str]) -> bool:
    """Whether a table is created with rows."""
    return "SELECT" in texts or texts.count("TABLE") > 1 or bool(_HAS_ROWS & {*itertools.pairwise(texts)})


def _is_servers_own(words: Sequence[_Word], database: str) -> bool:
    """Whether only one table of the server's own database is named, and no query."""
    texts = ["" if word.is_quoted else word.text for word in words]
    at = 1
    while at < len(texts) and texts[at] in _MODIFIERS:
        at += 1
    if texts[0] not in ("INSERT", "REPLACE", "UPDATE", "DELETE") or at == len(texts) or "SELECT" in texts:
        return False
    (its, _), behind = _name(words, at, database)
    qualifiers = {words[place - 1].raw for place, text in enumerate(texts) if text == "."}
    is_alone = behind == len(texts) or texts[behind] in _BEHIND_TABLE
    return its == _SERVERS_OWN and is_alone and qualifiers <= {_SERVERS_OWN}


def _names(words: Sequence[_Word], at: int, database: str) -> Iterator[tuple[str, str]]:
    """A list of names, separated by commas."""
    while at < len(words) and not words[at].is_quoted and words[at].text in ("IF", "NOT", "EXISTS"):
        at += 1
    while at < len(words):
        name, at = _name(words, at, database)
        yield name
        if at >= len(words) or words[at].text != "," or words[at].is_quoted:
            return
        at += 1


def _name(words: Sequence[_Word], at: int, database: str) -> tuple[tuple[str, str], int]:
    if at + 2 < len(words) and words[at + 1].text == "." and not words[at + 1].is_quoted:
        return (words[at].raw, words[at + 2].raw), at + 3
    return (database, words[at].raw), at + 1


def _renamed(words: Sequence[_Word], database: str) -> Iterator[tuple[str, str]]:
    """Old and new names of ``RENAME TABLE a TO b, c WAIT 5 TO d``."""
    at = 2
    while at < len(words):
        while not words[at].is_quoted and words[at].text in ("IF", "EXISTS"):
            at += 1
        old, at = _name(words, at, database)
        while at < len(words) and words[at].text != "TO":
            at += 1
        if at >= len(words):
            return
        new, at = _name(words, at + 1, database)
        yield old
        yield new
        at += 1


def _others(words: Sequence[_Word], texts: Sequence[str], at: int, database: str) -> Iterator[tuple[str, str]]:
    """The tables that get other rows, too: ``b`` of ``EXCHANGE PARTITION p WITH TABLE b``, ``CONVERT TABLE b TO
    PARTITION p`` and ``CONVERT PARTITION p TO TABLE b``."""
    for place in range(at, len(texts) - 2):
        if (texts[place], texts[place + 1]) in _BEFORE_OTHER:
            yield _name(words, place + 2, database)[0]


def _new_name(words: Sequence[_Word], at: int, database: str) -> tuple[str, str] | None:
    """The name that ``ALTER TABLE … RENAME [TO | AS] name`` gives; not of a column, a key or an index."""
    for place in range(at, len(words) - 1):
        if words[place].text != "RENAME" or words[place].is_quoted:
            continue
        following = words[place + 1]
        if not following.is_quoted and following.text in ("COLUMN", "KEY", "INDEX", "CONSTRAINT"):
            continue
        skips = not following.is_quoted and following.text in ("TO", "AS", "=")
        return _name(words, place + (2 if skips else 1), database)[0]
    return None


def _after_conditions(words: Sequence[_Word], at: int) -> _Word:
    while not words[at].is_quoted and words[at].text in ("IF", "EXISTS"):
        at += 1
    return words[at]


def _words(text: str) -> list[_Word]:
    """Without comments; of an executable comment (``/*! … */``) its content."""
    from sqlglot import tokenize
    from sqlglot.errors import TokenError
    from sqlglot.tokenizer_core import TokenType

    opened = _EXECUTABLE.sub(r" \1 ", text)
    try:  # what begins with some words is not split: a word before it prevents that
        _, *tokens = tokenize(f"BEFORE {opened}", dialect="mysql")
    except TokenError as error:
        raise ValueError(str(error)) from error
    quoted = (TokenType.IDENTIFIER, TokenType.STRING)
    return [_Word(t.text if t.token_type in quoted else t.text.upper(), t.token_type in quoted, t.text) for t in tokens]
