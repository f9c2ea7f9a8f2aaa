"""Text with secrets in it, as a value that never shows them."""

from __future__ import annotations

from dataclasses import dataclass, field

from flowctl.diagnostics import Mark


@dataclass(frozen=True)
class SecretRef:
    """``${secret:provider:name}``; resolved only when a connection is opened. ``mark`` is the place of its text."""

    provider: str
    name: str
    mark: Mark | None = field(default=None, compare=False, repr=False)

    def __str__(self) -> str:
        return f"${{secret:{self.provider}:{self.name}}}"


@dataclass(frozen=True)
class InlineSecret:
    """A secret that the command line or the environment gave as it is, encoded as it stands in its URL."""

    value: str = field(repr=False)

    def __str__(self) -> str:
        return "***"


@dataclass(frozen=True)
class SecretText:
    """Text with secrets in it. ``str()`` shows the references, never the values."""

    parts: tuple[str | SecretRef | InlineSecret, ...]

    def __str__(self) -> str:
        return "".join(str(part) for part in self.parts)
