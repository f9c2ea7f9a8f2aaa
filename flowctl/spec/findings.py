"""Collects diagnostics over the passes of one load: all errors are reported together, each one once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from flowctl.diagnostics import Diagnostic, Mark, in_order
from flowctl.spec.node import Node


@dataclass
class Findings:
    """A later pass reports nothing at a place where an earlier one has reported an error: it would only see the
    consequences. :meth:`next_pass` separates the passes."""

    diagnostics: list[Diagnostic] = field(default_factory=list)
    _settled: set[Mark] = field(default_factory=set)

    def error(self, where: Node | Mark, message: str, hint: str, code: str) -> None:
        mark = where.mark if isinstance(where, Node) else where
        self.extend([Diagnostic(message, hint, mark, code)])

    def extend(self, diagnostics: Iterable[Diagnostic]) -> None:
        self.diagnostics.extend(found for found in diagnostics if found.mark not in self._settled)

    def next_pass(self) -> None:
        self._settled.update(found.mark for found in self.diagnostics if found.mark)

    @property
    def sorted(self) -> tuple[Diagnostic, ...]:
        return in_order(self.diagnostics)
