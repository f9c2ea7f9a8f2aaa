"""Identifies a process on a host, precisely enough to be certain that it has ended, or that this is unknown."""

from __future__ import annotations

import os
import socket
from dataclasses import dataclass
from pathlib import Path

#: States of a process that has ended but has not been reaped.
_ENDED = ("Z", "X")


@dataclass(frozen=True)
class Process:
    """``boot_id`` is the kernel's, new with each boot. ``namespace`` is the PID namespace, outside of which ``pid``
    is meaningless: containers on one host share ``boot_id``. ``started`` (clock ticks since boot) distinguishes two
    processes that had the same pid. These three are empty on systems without ``/proc``."""

    host: str
    boot_id: str
    namespace: str
    pid: int
    started: str

    @classmethod
    def current(cls) -> Process:
        pid = os.getpid()
        return cls(socket.gethostname(), _boot_id(), _namespace(), pid, _stat(pid)[1])

    def is_this(self) -> bool:
        """True only if it is certainly the calling process."""
        return bool(self.boot_id and self.started) and self == Process.current()

    def is_gone(self) -> bool:
        """True only if the process would be visible from here, and is not."""
        if not self.boot_id or (self.boot_id, self.namespace) != (_boot_id(), _namespace()):
            return False
        if self.host != socket.gethostname():
            return False
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return True
        except PermissionError:
            pass  # of another user, whose processes ``/proc`` may hide
        state, started = _stat(self.pid)
        return state in _ENDED or (bool(started and self.started) and started != self.started)


def _boot_id() -> str:
    return _text("/proc/sys/kernel/random/boot_id").strip()


def _namespace() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return ""


def _stat(pid: int) -> tuple[str, str]:
    """State and start time of a process; empty if they cannot be read."""
    # The name, in parentheses, may contain any character; source: proc(5), fields 3 (state) and 22 (starttime).
    fields = _text(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return (fields[0], fields[19]) if fields else ("", "")


def _text(path: str) -> str:
    try:
        return Path(path).read_text()
    except OSError:
        return ""
