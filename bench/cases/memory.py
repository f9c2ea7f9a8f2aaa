"""Memory and buffer files of a load; meant for a scale at which neither could hold the table."""

from __future__ import annotations

from dataclasses import replace

from bench.case import Case, Command, Setting, Small
from bench.cases.postgres_to_delta import prepare, spec
from bench.contents import equals
from bench.programs import flowctl


def _command(setting: Setting) -> Command:
    """Spark's own files and the buffer are in one folder, whose size is measured."""
    scratch = setting.folder / "scratch"
    scratch.mkdir()
    command = flowctl.apply(lambda each: {**spec(each), "state": "scratch/state"})(setting)
    return replace(command, env={"TMPDIR": str(scratch)}, scratch=scratch)


CASE = Case(
    name="memory",
    title="Memory, PostgreSQL → Delta",
    says="The bulk load again, for its memory: the driver's Python process, the JVM, files in the buffer."
    " Made for `--scale 10`.",
    prepare=prepare,
    needs=("postgres",),
    competitors=(replace(flowctl.on_spark(spec, check=equals(flowctl.in_lake("lineitem"))), command=_command),),
    targets=(Small("flowctl", 512),),
    by_default=False,
)
