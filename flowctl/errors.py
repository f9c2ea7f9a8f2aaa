"""The one tree of errors, sorted by what the runner does with them.

    FlowctlError                 exit  what the runner does
    ├── UsageError                64   nothing ran: the command line is wrong
    ├── SpecError                  3   nothing ran: the spec is wrong (carries all diagnostics)
    ├── LockedError                5   nothing ran: somebody else holds the lease
    ├── AbortRun                   1   the whole run ends
    │   ├── StateConflict              the state log moved under us
    │   ├── LeaseLost                  our lease ran out or was taken
    │   ├── StalePlan                  a saved plan no longer fits spec, state, sources or targets
    │   └── EngineFailed               Spark did not start, or has ended: no table can go on
    ├── TableError                 4   this table fails; healthy tables go on, dependents are skipped
    │   ├── AccessDenied           4   the same for every table of the connection; never asked for again
    │   └── StoppedByPolicy        6   a guard or a policy stopped the table; nothing was written
    └── TransientError             4   retried with back-off; when the tries are used up the table fails

Every error says what is wrong (``message``), what to do next (``hint``) and, where a spec line is behind it,
where (``mark``). No error text holds a secret or a row value other than keys and cursor bounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from flowctl.diagnostics import Diagnostic, Mark
from flowctl.redaction import REDACTOR


class ExitCode:
    """The process exit codes, part of the published interface (`docs/plan-and-apply.md`)."""

    OK = 0
    BROKEN = 1
    CHANGES = 2
    SPEC = 3
    TABLE = 4
    LOCKED = 5
    STOPPED = 6
    USAGE = 64

    #: Of several codes in one run, the first in this order is the process's.
    PRECEDENCE = (SPEC, USAGE, LOCKED, BROKEN, TABLE, STOPPED, CHANGES, OK)

    @classmethod
    def first(cls, codes: Sequence[int]) -> int:
        """The code that counts among ``codes``; ``OK`` when there are none."""
        return next((code for code in cls.PRECEDENCE if code in codes), cls.OK)


class FlowctlError(Exception):
    """Base of everything flowctl raises on purpose. ``str()`` is the message alone. Both texts are redacted here,
    before anybody wraps, stores or prints them."""

    exit_code: ClassVar[int] = ExitCode.BROKEN

    def __init__(self, message: str, *, hint: str = "", mark: Mark | None = None) -> None:
        self.message = REDACTOR.redact(message)
        self.hint = REDACTOR.redact(hint)
        super().__init__(self.message)
        self.mark = mark

    def describe(self) -> str:
        """One line for people: ``file:line: message. hint``."""
        where = f"{self.mark}: " if self.mark else ""
        return f"{where}{self.message}" + (f". {self.hint}" if self.hint else "")


class UsageError(FlowctlError):
    exit_code = ExitCode.USAGE


class SpecError(FlowctlError):
    """The spec is invalid. ``diagnostics`` holds every finding, sorted by place."""

    exit_code = ExitCode.SPEC

    def __init__(self, diagnostics: Sequence[Diagnostic]) -> None:
        first = diagnostics[0]
        super().__init__(first.message, hint=first.hint, mark=first.mark)
        self.diagnostics = tuple(diagnostics)


class LockedError(FlowctlError):
    exit_code = ExitCode.LOCKED


class AbortRun(FlowctlError):
    exit_code = ExitCode.BROKEN


class StateConflict(AbortRun):
    pass


class LeaseLost(AbortRun):
    pass


class StalePlan(AbortRun):
    pass


class EngineFailed(AbortRun):
    """Spark could not be started or reached, lacks what the flow needs, or has ended."""


class TableError(FlowctlError):
    exit_code = ExitCode.TABLE


class AccessDenied(TableError):
    """A connection lets nobody in with what it was given: asked again for each of a hundred tables, a server that
    counts failures locks the account."""


class StoppedByPolicy(TableError):
    exit_code = ExitCode.STOPPED


class TransientError(FlowctlError):
    """Something that may go away by itself: a lost connection, throttling, a commit conflict."""

    exit_code = ExitCode.TABLE


def chain(error: BaseException) -> Iterator[BaseException]:
    """``error`` and its causes; at most eight, as some libraries chain an error to itself."""
    link: BaseException | None = error
    for _ in range(8):
        if link is None:
            return
        yield link
        link = link.__cause__
