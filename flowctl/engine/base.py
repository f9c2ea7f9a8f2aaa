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
from collections import Counter
from collections.abc import Iterable
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


#: Uses of a table's session before it is renewed. Sail 0.7 keeps what each has sent, a few hundred kB for a small batch
#: (measured: 0.7 MB for 400 kB), and a new session takes about 20 ms.
MOST_USES = 20


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
        self._uses: Counter[str] = Counter()
        self._all_uses = 0
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
            self._uses[table_id] += 1
            self._all_uses += 1
            return self._sessions[table_id]

    def renew(self, table_ids: Iterable[str]) -> None:
        """Ends those sessions of these tables that were used often: their next use gets a new one. Call it while
        nothing of these tables runs. A server keeps some of what a session was sent for as long as it lasts."""
        with self._lock:
            often = [id for id in table_ids if self._uses[id] >= MOST_USES and id in self._sessions]
            ended = [self._sessions.pop(id) for id in often]
            for id in often:
                del self._uses[id]
        for session in ended:
            self.end_session(session)

    def is_swollen(self) -> bool:
        """Whether another engine had better take its place, once nothing runs."""
        return False

    def end_session(self, session: SparkSession) -> None:
        """Frees what the engine keeps for it, if it keeps anything."""

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
