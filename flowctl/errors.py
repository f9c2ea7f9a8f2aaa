"""The one tree of errors, sorted by what the runner does with them.

    FlowctlError                 exit  what the runner does
    ├── UsageError                64   nothing ran: the command line is wrong
    ├── SpecError                  3   nothing ran: the spec is wrong (carries all diagnostics)
    ├── LockedError                5   nothing ran: another run holds the lease
    ├── AbortRun                   1   the whole run ends
    │   ├── StateConflict              another process changed the state or the target
    │   ├── LeaseLost                  the lease expired or was taken over
    │   ├── StalePlan                  a saved plan no longer fits spec, state, sources or targets
    │   └── EngineFailed               Spark did not start or has ended: no table can continue
    ├── TableError                 4   this table fails; other tables continue, dependents are skipped
    │   ├── AccessDenied           4   applies to every table of the connection; never retried
    │   ├── StatementRefused       4   a database does not understand a statement: often the spec's own SQL
    │   └── StoppedByPolicy        6   a guard or a policy stopped the table; nothing was written
    │       └── AlteredSincePlan   6   another plan is needed, and enough
    └── TransientError             4   retried with backoff; after the last attempt the table fails
        └── WriteConflict          4   another writer was faster: no connection is to blame

Every error has a description (``message``), a next step (``hint``) and, if a line of the spec caused it, its place
(``mark``). No error text contains a secret, or row values other than keys and cursor bounds.
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

    #: If several codes apply to one run, the process exits with the first in this order.
    PRECEDENCE = (SPEC, USAGE, LOCKED, BROKEN, TABLE, STOPPED, CHANGES, OK)

    @classmethod
    def first(cls, codes: Sequence[int]) -> int:
        """The code of ``codes`` that takes precedence; ``OK`` if there are none."""
        return next((code for code in cls.PRECEDENCE if code in codes), cls.OK)


class FlowctlError(Exception):
    """Base class of all errors that flowctl raises on purpose. ``str()`` is the message alone. Message and hint are
    redacted here, before they can be wrapped, stored or printed."""

    exit_code: ClassVar[int] = ExitCode.BROKEN

    def __init__(self, message: str, *, hint: str = "", mark: Mark | None = None) -> None:
        self.message = REDACTOR.redact(message)
        self.hint = REDACTOR.redact(hint)
        super().__init__(self.message)
        self.mark = mark

    @property
    def sentences(self) -> str:
        """Message and hint."""
        return f"{self.message.rstrip('.')}. {self.hint}" if self.hint else self.message

    def describe(self) -> str:
        """One line for people: ``file:line:column: message. hint``."""
        return f"{self.mark}: {self.sentences}" if self.mark else self.sentences


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


class Interrupted(TableError):
    """The run was asked to stop, and did not begin to commit the table."""


class AccessDenied(TableError):
    """A system rejects the connection's credentials. Not retried: one attempt for each of a hundred tables could make
    a server that counts failed logins lock the account."""


class StatementRefused(TableError):
    """A database cannot parse a statement, or knows no object, column or function of a name in it. If it reads a
    relation with `where` or `query`, these are to blame."""


class StoppedByPolicy(TableError):
    exit_code = ExitCode.STOPPED


class AlteredSincePlan(StoppedByPolicy):
    """A source does not have the columns with which the plan reads it."""


class TransientError(FlowctlError):
    """A problem that may disappear by itself: a lost connection, throttling, a commit conflict."""

    exit_code = ExitCode.TABLE


class WriteConflict(TransientError):
    """Two writers of one table, or of one file, at the same moment. The connection works, so the circuit breaker does
    not count it."""


def chain(error: BaseException) -> Iterator[BaseException]:
    """``error`` and its causes; at most eight, because some libraries chain an error to itself."""
    link: BaseException | None = error
    for _ in range(8):
        if link is None:
            return
        yield link
        link = link.__cause__
