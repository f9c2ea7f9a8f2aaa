"""Findings about a spec, each with its place in the file. Collected, never raised one by one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Mark:
    """A place in a spec file; line and column count from 1, as editors do. With line 0, ``file`` is no file: it names
    the option or the environment variable that gives a connection."""

    file: str
    line: int
    column: int = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}" if self.is_in_file else self.file

    @property
    def is_in_file(self) -> bool:
        return self.line > 0

    @property
    def brief(self) -> str:
        """Without the column."""
        return f"{self.file}:{self.line}" if self.is_in_file else self.file


@dataclass(frozen=True)
class Diagnostic:
    """One finding: what is wrong, what to do, and where. ``code`` is a stable kebab-case name for machines."""

    message: str
    hint: str
    mark: Mark | None
    code: str

    def render(self) -> str:
        """``file:line:col: error: what is wrong. What to do``."""
        where = f"{self.mark}: " if self.mark else ""
        return f"{where}error: {self.message}" + (f". {self.hint}" if self.hint else "")


def in_order(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    """Sorted by file, line, column, then message; exact repeats removed."""
    unique = dict.fromkeys(diagnostics)
    nowhere = Mark("", 0, 0)
    return tuple(sorted(unique, key=lambda found: (found.mark or nowhere, found.message)))
