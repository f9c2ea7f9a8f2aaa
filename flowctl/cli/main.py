"""The command line. One module per command, imported when it is called; errors become text and exit codes here."""

from __future__ import annotations

import errno
import gc
import importlib
import os
import sys
from difflib import get_close_matches
from typing import Any

import click

from flowctl import extras
from flowctl.cli import output
from flowctl.errors import ExitCode, FlowctlError
from flowctl.redaction import register_environment
from flowctl.storage.access import HINT, refused_access

#: One line of help per command, so that `flowctl --help` imports none of them.
_COMMANDS = {
    "init": "Write a spec for a database or a folder of files.",
    "validate": "Check specs offline and report all errors at once.",
    "plan": "Show exactly what apply would do.",
    "apply": "Print the plan and execute it.",
    "state": "Show and change what the state store remembers.",
    "dlq": "Show dead letters, and have them read again.",
    "restore": "Bring a table in Delta or Iceberg back to an earlier sequence number.",
    "maintain": "Compact tables in Delta or Iceberg and remove old files, where due.",
    "runs": "Show the run history.",
    "doctor": "Ask every connection and stream what is wrong.",
    "cuts": "Show which table versions of a lake belong together.",
    "setup": "Fetch the jars, check their sums, build the JVM archive.",
    "spark-server": "Run a Spark Connect server for many short runs.",
    "schema": "Print the JSON Schema for editors.",
}


#: pyspark sets these when a context starts, in a thread. A new variable may then move the environment that other
#: threads read (:mod:`flowctl.engine.environment`), one that exists does not. The values are Spark's defaults.
_SET_BY_PYSPARK = {"SPARK_AUTH_SOCKET_TIMEOUT": "15", "SPARK_BUFFER_SIZE": "65536"}


#: New objects until a collection looks for cycles, by default 700. Messages, rows and the parts of a spec have none,
#: and are so many that collections took a quarter of the time in which a topic is read, or a spec of 500 tables.
_COLLECT_AFTER = 100_000


_FULL = (errno.ENOSPC, errno.EDQUOT)


def main(arguments: list[str] | None = None) -> None:
    """Runs one command and ends the process with its exit code."""
    gc.set_threshold(_COLLECT_AFTER)
    output.redact_standard_streams()
    register_environment()
    if not {"--verbose", "-v"} & set(arguments if arguments is not None else sys.argv):
        os.environ.setdefault("RUST_LOG", "error")  # Rust libraries write their own warnings to standard error
    for name, value in _SET_BY_PYSPARK.items():
        os.environ.setdefault(name, value)
    sys.exit(run(arguments))


def run(arguments: list[str] | None = None) -> int:
    """Runs one command in this process; returns the exit code. Usage errors are 64, not click's own code."""
    settings = output.OutputSettings()
    return output.conclude(_run(arguments, settings), settings)


def _run(arguments: list[str] | None, settings: output.OutputSettings) -> int:
    try:
        result = _group.main(arguments, prog_name="flowctl", standalone_mode=False, obj=settings)
    except FlowctlError as error:
        output.write_error(error, settings)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return ExitCode.USAGE
    except click.Abort:
        output.write_line("Aborted.")
        return ExitCode.BROKEN
    except Exception as error:  # noqa: BLE001 - traces are shown only with --verbose
        output.write_error(_unforeseen(error), settings)
        return ExitCode.BROKEN
    return result if isinstance(result, int) else ExitCode.OK


def _unforeseen(error: Exception) -> FlowctlError:
    """An error that is not one of flowctl's own: the system refused a file, or flowctl has a defect."""
    if isinstance(error, OSError) and error.filename is not None:
        reported = FlowctlError(f"{error.filename}: {error.strerror}", hint="Check the path and its permissions")
    elif isinstance(error, OSError) and error.errno in _FULL:  # raised by a write, which knows no path
        reported = FlowctlError(f"a file could not be written: {error.strerror}", hint="Make room on the disk")
    elif isinstance(error, ImportError) and (missing := extras.missing_package(str(error))):
        reported = FlowctlError(f"{missing} is not installed", hint=extras.install_hint(missing))
    elif refusal := refused_access(error):
        reported = FlowctlError(f"a store refuses access: {refusal}", hint=HINT)
    else:
        first = next(iter(str(error).splitlines()), "")
        reported = FlowctlError(
            f"flowctl has a defect: {type(error).__name__}: {first}",
            hint="Run again with --verbose and report what it prints",
        )
    reported.__cause__ = error
    return reported


def command_of(name: str) -> click.Command:
    """The command called ``name``, with the options that all commands have."""
    command: click.Command = importlib.import_module(f"flowctl.cli.{name.replace('-', '_')}").command
    return output.output_options(command)


class _LazyGroup(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return command_of(cmd_name) if cmd_name in _COMMANDS else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in _COMMANDS and (close := get_close_matches(name, _COMMANDS, 1)):
            ctx.fail(f"No such command {name!r}. Did you mean {close[0]!r}?")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(_COMMANDS.items()))


def _show_version(context: click.Context, _: click.Parameter, wanted: bool) -> None:
    if wanted and not context.resilient_parsing:
        from flowctl.cli.version import version_lines

        output.write_result("\n".join(version_lines()))
        context.exit()


@click.group(cls=_LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_show_version, help="Show versions."
)
@click.option("--verbose", "-v", is_flag=True, expose_value=False, callback=output.keep_setting("verbose"), hidden=True)
def _group(**settings: Any) -> None:
    """Move tables as described by a YAML spec: validate it, plan the run, apply exactly that plan."""
