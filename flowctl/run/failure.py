"""Translates exceptions from Spark, drivers or flowctl itself into flowctl's errors, with readable messages.

Spark wraps every cause in several layers of Java; a user needs the innermost line. Errors are recognized by stable
parts of the text (SQLSTATE, Spark and Delta error classes), never by a Java class path alone.

Spark reads and writes in one job, so the failed call does not identify the connection at fault; the text does if it
names a place or a system (:func:`at_fault`). Otherwise, no connection is blamed: the circuit breaker must not open on
a healthy connection because of another one's failure, or the engine's.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from flowctl import extras
from flowctl.connectors import refusal, registry
from flowctl.diagnostics import Mark
from flowctl.errors import AccessDenied, FlowctlError, TableError, TransientError, WriteConflict, chain
from flowctl.spec.spec import Connection
from flowctl.storage import access

#: Text before the message of a row check that failed inside Spark (`raise_error` in the projection).
CHECK_PREFIX = "flowctl check failed: "

_OWN = re.compile(rf"(?:{CHECK_PREFIX}|{refusal.PREFIX})([^\n]*?)(?= SQLSTATE|\n|$)")
_TRANSIENT = re.compile(
    r"DELTA_CONCURRENT|ConcurrentAppendException|ConcurrentWriteException|ConcurrentDelete|ConcurrentTransaction"
    r"|MetadataChangedException|ProtocolChangedException"
    r"|SQLSTATE[ :]*(?:08\w{3}|40001|40P01|53\w{3}|57P0[123])"
    r"|[Cc]onnection (?:refused|reset|to \S+ refused)|An I/O error occurred while sending to the backend"
    r"|terminating connection|server closed the connection|the database system is (?:starting|shutting)"
    r"|This connection has been closed|SlowDown|Reduce your request rate|TooManyRequests|503 Service"
    r"|StatusCode\.UNAVAILABLE|database is locked|Temporary failure in name resolution"
)
#: The last line of a traceback: the first after its frames.
_PYTHON = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)*([\w.]+: .*)$", re.MULTILINE)
_NOISE = re.compile(r"^(?:[\w.$]+(?:Exception|Error): )+")
_STATE = re.compile(r"\s*SQLSTATE: \w{5}\s*$")

#: Spark's errors about data: those of this class, and one that belongs to it.
_DATA = re.compile(r"SQLSTATE: 22\w{3}|\[INVALID_FORMAT\.MISMATCH_INPUT\] ")
_CONDITION = re.compile(r"(?:^|: )\[([A-Z][A-Z0-9_]+(?:\.[A-Z0-9_]+)*)\] ", re.MULTILINE)
_CAST = re.compile(r'of the type "[^"]+" cannot be (?:cast|converted) to "[^"]+"')


#: py4j's text before Java's own message.
_CALL = re.compile(r"An error occurred while calling \S+?\.*")
#: Why the last attempt of a task failed.
_STAGE = re.compile(r"Job aborted due to stage failure: .*?most recent failure: (?:Lost task [^:]*: )?(.+)")
_LOST_EXECUTORS = re.compile(
    r"ExecutorLostFailure|ExecutorDeadException|Fetch ?Failed|MetadataFetchFailed|[Ee]xecutor (?:\S+ )?(?:was )?lost"
    r"|Lost executor|executor heartbeat timed out|Slave lost|Worker lost|stage failure.*decommission"
)
_FULL = re.compile(r"No space left on device|os error 28|Disk quota exceeded")
_ANSI = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_XML = re.compile(r"<\?xml.*|<(\w+)>.*</\1>")
_STORE = re.compile(r"\b(s3[an]?|gs|abfss?|az)://([^/\s,;:'\"]+)")
_GRPC = re.compile(r"_(?:InactiveRpcError|MultiThreadedRendezvous) of RPC.*?details = \"([^\"]*)\"", re.DOTALL)


def translate(error: BaseException, mark: Mark | None, store: str = "the store") -> FlowctlError:
    """Converts an error to one of flowctl's: unchanged if it already is one (with ``mark`` filled in), otherwise by its
    text. ``store`` is the name to use when access was refused and the text names no store."""
    if isinstance(error, TransientError) and (refusal := access.refused_access(error)):  # retrying would not help
        return _denied(refusal, whole_text(error), store, mark)
    if isinstance(error, FlowctlError):
        if error.mark is None:
            error.mark = mark
        return error
    text = whole_text(error)
    if own := _OWN.search(text):
        message, _, hint = own[1].strip().partition(" | ")
        return TableError(message, hint=hint, mark=mark)
    if refusal := access.refused_access(error):
        return _denied(refusal, text, store, mark)
    if of_value := _of_value(text):
        return TableError(of_value, hint=_EXPRESSION, mark=mark)
    line = headline(text)
    if missing := extras.missing_package(line if "Traceback" in text else text):
        where = "with the Python of Spark's executors" if "Traceback" in text else "here"
        return TableError(f"{missing} is not installed {where}", hint=extras.install_hint(missing), mark=mark)
    if _LOST_EXECUTORS.search(text):
        hint = "Look at why Spark's executors end (memory, preemption) and run again; it was tried several times"
        return TransientError(f"Spark lost executors: {line}", hint=hint, mark=mark)
    if _FULL.search(text):
        hint = "Make room where the target, or the state with its buffer, is; then run again to finish it"
        return TableError(line, hint=hint, mark=mark)
    if _TRANSIENT.search(text):
        return TransientError(line, hint="Check the system and run again; it was tried several times", mark=mark)
    return TableError(line, hint="Run with --verbose for the trace", mark=mark)


def _of_value(text: str) -> str:
    """What Spark refuses a value of a row for, without the value; empty for any other error. Its own sentence has the
    value in many ways, some without quotes."""
    conditions = _CONDITION.findall(text) if _DATA.search(text) else []
    if not conditions:
        return ""
    types = _CAST.search(text)
    what = f"a value {types[0]}" if types else "an expression fails for a row"
    return f"[{conditions[-1]}] {what}"


_EXPRESSION = (
    "Correct the source's value, or the spec's expression: Spark's functions try_… give null instead; run with "
    "--verbose for Spark's own words, which may hold the value"
)


def _denied(refusal: str, text: str, store: str, mark: Mark | None) -> AccessDenied:
    return AccessDenied(f"{_store_in(text) or store} refuses access: {refusal}", hint=access.HINT, mark=mark)


def headline(text: str) -> str:
    """The innermost cause of a Java or Python error, in one line, without class names and stack trace."""
    lines = [line.strip() for line in _ANSI.sub("", text).splitlines()]
    lines = [line.removeprefix(": ") for line in lines if line and not _CALL.fullmatch(line)]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    if python := _PYTHON.findall(text):  # raised by a Python worker; Java's text around it adds nothing
        causes = [python[-1]]
    if status := _GRPC.search(text):  # the rest is a dump of the call
        causes = [f"Spark does not answer: {status[1]}"]
    chosen = causes[-1] if causes else next((line for line in lines if not line.startswith("at ")), "unknown error")
    if failed := _STAGE.search(chosen):
        chosen = failed[1]
    chosen = _XML.sub("", chosen)
    return _STATE.sub("", _NOISE.sub("", chosen)).strip() or "unknown error"


def _store_in(text: str) -> str:
    """The bucket or container that a text names."""
    found = _STORE.search(text)
    return f"{found[1].replace('s3a', 's3').replace('s3n', 's3')}://{found[2]}" if found else ""


def whole_text(error: BaseException) -> str:
    """The text of the error and of its causes; for a Java error, this includes the Java stack trace."""
    return "\n".join(str(link) or type(link).__name__ for link in chain(error))


#: Conflicts between two writers: the connection works.
_CONFLICT = re.compile(r"DELTA_CONCURRENT|Concurrent\w+Exception|database is locked|40001|40P01|55P03")
#: Shorter places could match parts of words.
_SHORTEST = 4


def at_fault(error: BaseException, connections: Sequence[Connection]) -> tuple[str, ...]:
    """Names of the ``connections`` that ``error`` or its causes mention. Several if they lead to the same place; none
    for a conflict between two writers."""
    text = whole_text(error)
    if _CONFLICT.search(text) or any(isinstance(link, WriteConflict) for link in chain(error)):
        return ()
    named = [connection.name for connection in connections if any(place in text for place in places(connection))]
    if named:
        return tuple(named)
    signed = [
        connection.name
        for connection in connections
        if any(sign in text for sign in registry.capabilities(connection.type).signs)
    ]
    return tuple(signed) if len(signed) == 1 else ()


def places(connection: Connection) -> tuple[str, ...]:
    """The names that errors use for the connection's system, from options that the spec contains in plain text."""
    options = {name: str(value) for name, value in connection.options.items()}
    found = registry.capabilities(connection.type).places(options)
    return tuple(place for place in found if len(place) >= _SHORTEST and "${" not in place)
