"""All output of the program: results on stdout, the rest on stderr, everything through one redactor."""

from __future__ import annotations

import datetime as dt
import json
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TextIO

import click

from flowctl import text
from flowctl.errors import FlowctlError, SpecError
from flowctl.redaction import REDACTOR

if TYPE_CHECKING:
    from rich.text import Text

Format = Literal["text", "json", "github"]


@dataclass
class OutputSettings:
    """The values of ``--format``, ``--log-format`` and ``--verbose``, wherever they are on the command line."""

    format: Format = "text"
    log_format: Literal["text", "json"] = "text"
    verbose: bool = False
    run_id: str = ""


def settings() -> OutputSettings:
    """The settings of the command that is running."""
    context = click.get_current_context(silent=True)
    return context.ensure_object(OutputSettings) if context else OutputSettings()


def width() -> int:
    """The width of stdout in columns: the terminal's, if it is a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else text.WIDTH


def write_result(result: str) -> None:
    """One result on stdout, with a line break."""
    click.echo(REDACTOR.redact(result))


def write_lines(lines: Iterable[text.Line]) -> None:
    """On stdout: with colours on a terminal, unless NO_COLOR is set; stable plain text elsewhere."""
    if not sys.stdout.isatty():
        write_result(text.plain(lines))
        return
    from rich.console import Console

    Console(file=sys.stdout, highlight=False, soft_wrap=True).print(styled(lines))


def styled(lines: Iterable[text.Line]) -> Text:
    """The same text for :mod:`rich`."""
    from rich.text import Text

    shown = [Text.assemble(*((piece.text, piece.style) for piece in line)) for line in lines]
    for line in shown:
        line.rstrip()
    return Text("\n").join(shown)


def write_json(document: Any) -> None:
    """One JSON document on stdout."""
    write_result(json.dumps(document, indent=2, ensure_ascii=False))


def write_line(line: str) -> None:
    """One line of text on stderr. Does not use click, which bypasses a replaced `sys.stderr` and so writes into the
    middle of a progress bar."""
    sys.stderr.write(REDACTOR.redact(line) + "\n")  # in one write: `print` writes the line break separately
    sys.stderr.flush()


def write_error(error: FlowctlError, settings: OutputSettings) -> None:
    """The error on stderr: every finding of an invalid spec, otherwise one line. With ``--verbose`` also the traceback,
    with ``--log-format json`` one JSON object per line."""
    if settings.log_format == "json":
        for record in _records(error):
            write_record(record, settings)
    elif isinstance(error, SpecError):
        for found in error.diagnostics:
            write_line(found.render())
    else:
        write_line(f"error: {error.describe()}")
    if settings.verbose and not isinstance(error, SpecError):
        import traceback

        write_line("".join(traceback.format_exception(error)).rstrip())


def write_record(record: Mapping[str, Any], settings: OutputSettings) -> None:
    """One JSON object on stderr, with the time and the run that it belongs to."""
    now = dt.datetime.now(dt.UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
    run = {"run": settings.run_id} if settings.run_id else {}
    write_line(json.dumps({"at": now, **run, **record}, ensure_ascii=False))


def redact_standard_streams() -> None:
    """Puts the redactor in front of ``sys.stdout`` and ``sys.stderr``, for the output of libraries and loggers. Child
    processes bypass it."""
    sys.stdout = _Redacting(sys.stdout)
    sys.stderr = _Redacting(sys.stderr)


def output_options(command: click.Command) -> click.Command:
    """Adds ``--format``, ``--log-format`` and ``--verbose`` to ``command`` (and to all commands below a group) where it
    does not define them; :func:`settings` holds the values."""
    if isinstance(command, click.Group):
        for child in command.commands.values():
            output_options(child)
        return command
    own = {option for parameter in command.params for option in parameter.opts}
    command.params += [option for option in _options() if own.isdisjoint(option.opts)]
    return command


class _Redacting:
    """A text stream that redacts each piece written to it; everything else is passed on to the stream."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        self._stream.write(REDACTOR.redact(text))
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        for line in lines:
            self.write(line)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def _records(error: FlowctlError) -> list[dict[str, Any]]:
    if isinstance(error, SpecError):
        return [
            {
                "level": "error",
                "code": found.code,
                "message": found.message,
                "hint": found.hint,
                "place": str(found.mark) if found.mark else None,
            }
            for found in error.diagnostics
        ]
    place = str(error.mark) if error.mark else None
    return [{"level": "error", "message": error.message, "hint": error.hint, "place": place}]


def keep_setting(name: str) -> Callable[[click.Context, click.Parameter, Any], Any]:
    """A click callback that stores an option's value in :func:`settings`."""

    def keep(context: click.Context, _: click.Parameter, value: Any) -> Any:
        if value:
            setattr(context.ensure_object(OutputSettings), name, value)
        return value

    return keep


def _options() -> list[click.Option]:
    """The options of all commands."""
    formats = click.Choice(["text", "json"])
    return [
        click.Option(
            ["--format"],
            type=formats,
            expose_value=False,
            callback=keep_setting("format"),
            help="Format of the result.  [default: text]",
        ),
        click.Option(
            ["--log-format"],
            type=formats,
            expose_value=False,
            callback=keep_setting("log_format"),
            help="Format of logs and errors.  [default: text]",
        ),
        click.Option(
            ["--verbose", "-v"],
            is_flag=True,
            expose_value=False,
            callback=keep_setting("verbose"),
            help="Show more detail, and the traces of errors.",
        ),
    ]
