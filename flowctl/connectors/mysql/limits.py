"""Columns of somebody else's table whose types change values without an error, even in strict mode: fractions are
rounded, trailing blanks are cut off, bytes are padded, the members of an ENUM are found whatever their case is, those
of a SET are put into the order of its type, and a UUID or an address is written in one of its ways."""

from __future__ import annotations

import re

from flowctl.connectors.mysql.columns import quoted
from flowctl.connectors.mysql.session import MysqlSession
from flowctl.connectors.mysql.types import split_comment
from flowctl.connectors.sql import limits
from flowctl.connectors.sql.change import StagedRows
from flowctl.connectors.target import WriteJob
from flowctl.model import types
from flowctl.model.table_info import Column

_SHAPE = re.compile(r"(\w+)(?:\((.*)\))?[^)]*", re.DOTALL)


def is_limited(column: Column) -> bool:
    return _test(column) is not None


def require_kept(session: MysqlSession, job: WriteJob, staged: StagedRows) -> None:
    """Raises :class:`FlowctlError` for a staged value that the job's table would change."""
    there = session.describe([job.object])[job.object]
    for column in there.columns if there else ():
        test = _test(column)
        if test is not None and column.name in staged.columns:
            hint = "Change the column in the target, or convert the value with columns.add to what the column keeps"
            limits.require_kept(session, job, staged, column, test, hint)


def _test(column: Column) -> str | None:
    """Whether a value, which is not null, stays as it is; None if every value does, or is refused by the server."""
    name, found = quoted(column.name), _SHAPE.fullmatch(split_comment(column.native)[0])
    kind, arguments = (found[1].lower(), found[2] or "") if found else ("", "")
    _, _, scale = arguments.partition(",")
    match kind:
        case "datetime" | "timestamp" | "time" if arguments != "6":
            return f"MICROSECOND({name}) % {10 ** (6 - int(arguments or 0))} = 0"
        case "char":
            return f"{name} NOT LIKE '% '"
        case "varchar":  # of a longer one, blanks are cut off
            return f"CHAR_LENGTH({name}) <= {arguments}"
        case "enum":
            return f"{name} IN ({arguments})"
        case "set":
            return f"{name} = CONCAT_WS(',', {', '.join(_if_in(member, name) for member in arguments.split(','))})"
        case "binary":
            return f"LENGTH({name}) = {arguments or 1}"
        case "year":
            return f"{name} = 0 OR {name} > 99"
        case "float" | "double" if scale:
            return f"ROUND({name}, {scale}) = {name}"
        case "uuid" | "inet4" | "inet6":
            return f"{name} = CAST(CAST({name} AS {kind}) AS CHAR)"
        case "decimal" if column.type == types.STRING:
            return f"{name} REGEXP '^[-+]?[0-9]*([.][0-9]{{0,{scale or 0}}}0*)?$'"
        case _:
            return None


def _if_in(member: str, name: str) -> str:
    """``member``, a literal, if the set has it as it is written: no member has a comma."""
    return f"IF(FIND_IN_SET({member}, {name}), {member}, NULL)"
