"""The contract of an engine: give each table its own session, report that the engine has ended, interrupt its work.

An engine does not depend on tables or connectors. There is one per run, started by
:func:`flowctl.engine.start.open_engine` once a table is certain to need it: :mod:`classic` (a child JVM),
:mod:`connect` (an existing Spark Connect server), :mod:`sail` (a child Spark Connect server without a JVM).
"""

from __future__ import annotations

import re
import subprocess
import threading
from abc import ABC, abstractmethod
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from flowctl.engine import timeouts
from flowctl.engine.jvm import tail
from flowctl.engine.processes import was_silent
from flowctl.errors import EngineFailed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: How long a process may take to end after its connections are closed.
_ENDING_SECONDS = 5.0
_NO_ANSWER = re.compile(
    r"Answer from Java side is empty|Py4JNetworkError|Error while (?:sending|receiving|obtaining)|Code\.UNAVAILABLE"
    r"|Connection refused|Connection reset|Broken pipe|Socket closed|SparkContext was shut ?down|stopped SparkContext"
    r"|An error occurred while calling \S+\w$",  # an error raised in Java is followed by a period and its trace
    re.MULTILINE,
)
#: Lines of a JVM's log that state why it ended.
_DEADLY = re.compile(r"OutOfMemoryError|insufficient memory|fatal error|No space left|There is insufficient")


class Engine(ABC):
    """A running engine. ``session_for`` may be called from any thread; sessions are unusable after the engine ended.
    ``spark`` is the engine's own session; ``process`` is the process that flowctl started for it, if any, and ``log``
    the file with its output."""

    def __init__(
        self, spark: SparkSession, process: subprocess.Popen[bytes] | None = None, log: Path | None = None
    ) -> None:
        self.spark = spark
        self.process = process
        self.log = log
        self._sessions: dict[str, SparkSession] = {}
        self._lock = threading.Lock()

    @abstractmethod
    def new_session(self, *, interpreted: bool) -> SparkSession:
        """A new session. ``interpreted``: its tables are too small to compile queries for; ignored by engines whose
        sessions cannot choose."""

    def session_for(self, table_id: str, *, interpreted: bool = False) -> SparkSession:
        """The table's own session: settings and temporary views are never shared between tables."""
        with self._lock:
            if self.process is not None and (code := self.process.poll()) is not None:
                raise self._ended(code)
            if table_id not in self._sessions:
                self._sessions[table_id] = self.new_session(interpreted=interpreted)
            return self._sessions[table_id]

    def lost(self, text: str) -> EngineFailed | None:
        """Why the engine has ended; None if it has not. Called after an error; its ``text`` may indicate a broken
        connection."""
        if self.process is not None:
            with suppress(subprocess.TimeoutExpired):  # the connection breaks a moment before the process has ended
                return self._ended(self.process.wait(_ENDING_SECONDS if seems_gone(text) else 0))
        return None

    def _ended(self, code: int) -> EngineFailed:
        reason = next((line.strip() for line in tail(self.log, 200).splitlines() if _DEADLY.search(line)), "")
        if self.process is not None and was_silent(self.process):
            return EngineFailed(
                f"Spark did not answer for {timeouts.ENGINE_SILENCE:.0f} s and was ended",
                hint="Check this machine's load and memory (or what has suspended the process), and run again",
            )
        how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
        return EngineFailed(
            f"Spark has ended by itself ({how})" + (f": {reason[:300]}" if reason else ""),
            hint="Check this machine's memory and spark.driver.memory, then run again; --verbose shows Spark's output",
        )

    def interrupt(self, table_id: str) -> None:
        """Asks Spark to cancel the work of this table's session; a commit may still succeed."""
        with self._lock:
            session = self._sessions.get(table_id)
        if session is not None:
            session.interruptAll()

    def interrupt_all(self) -> None:
        with self._lock:
            ids = list(self._sessions)
        for table_id in ids:
            self.interrupt(table_id)

    def abandon(self) -> None:
        """Aborts every call to a server, so that waiting threads continue. Takes no lock, because one of them may hold
        it. The engine is not used afterwards."""

    def sessions(self) -> list[SparkSession]:
        with self._lock:
            return [*self._sessions.values(), self.spark]

    def log_tail(self, lines: int = 20) -> str:
        """The end of the JVM's own output, for ``--verbose`` and for a JVM that died; empty if flowctl did not start
        it."""
        return tail(self.log, lines)


def seems_gone(text: str) -> bool:
    """Whether an error's text indicates a broken connection."""
    return _NO_ANSWER.search(text) is not None
