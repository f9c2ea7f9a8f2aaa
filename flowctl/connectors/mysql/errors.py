"""MySQL's errors as flowctl's, by what the runner does with them. Source: MySQL's and MariaDB's error references."""

from __future__ import annotations

import re

from flowctl.connectors.sql.hindrances import DROP_WHAT_USES_IT, REFERRED_TO
from flowctl.errors import AccessDenied, FlowctlError, StatementRefused, TableError, TransientError, WriteConflict

_LOGIN = (1044, 1045, 1049, 1130, 1251, 1698, 1820, 1862, 2059, 4151)
RIGHTS = (1142, 1143, 1227, 1370, 1410)
_LOCKS = (1205, 1213, 3572)
#: A table or a column that was not there a moment ago: DDL is no part of a transaction.
_MADE_MEANWHILE = (1050, 1060)
_CONNECTION = (1040, 1053, 1077, 1152, 1158, 1159, 1160, 1161, 1203, 1226, 1317, 1927, 2002, 2003, 2005, 2006,
               2013, 2055, 3024, 4031)  # fmt: skip
#: A table was altered after the snapshot was taken that is to show it.
_ALTERED = 1412
_READ_ONLY = (1290, 1792, 1836)
_IN_USE = (1091, 1553, 1829, 1846, 3108, 3837, 3959, 1901, 1072)
#: Rows of another table refer to a row that is to be deleted, or to a key that is to change.
_REFERRED_TO = (1217, 1451)
#: The driver's: the server has no TLS, or its handshake failed.
_NO_TLS = 2026
NO_TABLE = 1146
#: Syntax, names, and what is used where it cannot be.
_NOT_UNDERSTOOD = (1052, 1054, 1055, 1064, 1111, 1140, NO_TABLE, 1241, 1305, 1318, 1582, 1630)
_INVALID_VIEW, _NO_DEFINER = 1356, 1449
#: No partition of a table takes a row. Its text ends with the value.
_NO_PARTITION = 1526
REPAIR_VIEW = "Repair the view, or GRANT its definer what it selects from"
#: The error of a row that a unique key refuses.
DUPLICATE = 1062
ROW_SIZE = (1118, 1117)
#: Errors whose text holds a value, in quotes. Sessions have the texts in English.
_VALUE = re.compile(r"(?i)\b(value|entry|string):? '(?:.*'(?= for\b| to\b| when\b| from\b)|.*'$)", re.DOTALL)
_PARTITION_VALUE = re.compile(r"(?<= for value ).*", re.DOTALL)


def code_of(error: BaseException) -> int:
    """0 if the driver itself failed."""
    return error.args[0] if error.args and isinstance(error.args[0], int) else 0


def explained(error: Exception, place: str, user: str) -> FlowctlError:
    code = code_of(error)
    text = str(error.args[1] if code and len(error.args) > 1 else error)
    without_value = _VALUE.sub(r"\1 …", text)
    message = f"MySQL {place}: {without_value}"
    if code == _NO_TLS:
        message = f"MySQL {place} does not offer TLS, which the connection requires"
        return AccessDenied(message, hint="Set up TLS on the server, or set `sslmode: prefer` without files for TLS")
    if code in _LOGIN or (not code and "caching_sha2" in text):
        return AccessDenied(message, hint="Check user, password, database and the user's hosts on the server")
    if code in RIGHTS:
        return TableError(message, hint=f"GRANT what is missing to {user}")
    if code in _LOCKS:
        return WriteConflict(message, hint="Try again: another transaction holds a lock")
    if code in _MADE_MEANWHILE:
        return WriteConflict(message, hint="Try again: somebody else has made it in the same moment")
    if code in _CONNECTION:
        return TransientError(message, hint="Check that the server is up and can be reached")
    if code == _ALTERED:
        return TransientError(message, hint="Wait: somebody has altered the table, and it is read at another moment")
    if code in _READ_ONLY:
        return TableError(message, hint="Name the primary server")
    if code in _IN_USE:
        return TableError(message, hint=DROP_WHAT_USES_IT)
    if code in _REFERRED_TO:
        return TableError(message, hint=REFERRED_TO)
    if code == _NO_PARTITION:
        named = _PARTITION_VALUE.sub("…", message)
        return TableError(named, hint="Add a partition for such rows: ALTER TABLE … ADD PARTITION (PARTITION …)")
    if code == _INVALID_VIEW:
        return TableError(message, hint=REPAIR_VIEW)
    if code == _NO_DEFINER:
        return TableError(message, hint="Create that user, or give the view or the trigger another DEFINER")
    if code in ROW_SIZE:
        return TableError(message, hint="Leave columns out with columns.exclude, or split the table")
    kind = StatementRefused if code in _NOT_UNDERSTOOD else TableError
    return kind(message, hint=f"Look up error {code} in the server's manual" if code else "")
