"""All output of the program: results on stdout, the rest on stderr, everything through one redactor."""

from __future__ import annotations

import datetime as dt
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO

import click

from flowctl import text
from flowctl.errors import ExitCode, FlowctlError, SpecError
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
    processes bypass it. Streams that the caller has closed are opened on the null device."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:  # otherwise the next file, perhaps a database, gets this number, and what is printed with it
            os.open(os.devnull, os.O_RDWR)  # the lowest number that is free: this one
    null = Path(os.devnull)
    sys.stdin = sys.stdin or null.open(encoding="utf-8")
    sys.stdout = _Redacting(sys.stdout or null.open("w", encoding="utf-8"))
    sys.stderr = _Redacting(sys.stderr or null.open("w", encoding="utf-8"))


def conclude(exit_code: int, settings: OutputSettings) -> int:
    """The exit code of the process, after a command that ends with ``exit_code``: results that could not be written,
    because of a full disk, are a failure. Those that nobody reads any more are none."""
    sys.stdout.flush()
    failure = sys.stdout.failure if isinstance(sys.stdout, _Redacting) else None
    if failure is None:
        return exit_code
    reason = f"standard output could not be written: {failure.strerror}; the command itself ran to its end"
    write_error(FlowctlError(reason, hint="Make room there, or write to another place"), settings)
    return ExitCode.first([exit_code, ExitCode.BROKEN])


def confirm(question: str, *, otherwise: str) -> bool:
    """Asks on the terminal. If nobody can answer, because standard input is closed or ends, raises a
    :class:`FlowctlError` with ``otherwise``, how to go without the question."""
    try:
        return click.confirm(question, err=True)
    except click.Abort as abort:
        if not isinstance(abort.__context__, EOFError):
            raise
        write_line("")  # ends the line of the question
        raise FlowctlError("not confirmed: standard input has no answer", hint=otherwise) from None


def require_consent(question: str, *, yes: bool) -> None:
    """Asks unless ``yes``, the option ``--yes``, and ends the command if the answer is no."""
    if not yes and not confirm(question, otherwise="Use --yes to go without the question"):
        raise click.Abort


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
    """A text stream that redacts each piece written to it; everything else is passed on to the stream. No command
    depends on being read: from the first failure on, what is written is dropped. ``failure`` is that failure, unless
    the reader has left."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.failure: OSError | None = None

    def write(self, text: str) -> int:
        with self._dropping():
            self._stream.write(REDACTOR.redact(text))
        return len(text)

    def flush(self) -> None:
        with self._dropping():
            self._stream.flush()

    @contextmanager
    def _dropping(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if not isinstance(error, BrokenPipeError):
                self.failure = self.failure or error
            null = os.open(os.devnull, os.O_WRONLY)  # also for what is still buffered, and for child processes
            os.dup2(null, self._stream.fileno())
            os.close(null)

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
