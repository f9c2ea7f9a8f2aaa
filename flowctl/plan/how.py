"""A short description of what was chosen for one table and why, as the plan shows it. Makes no decisions."""

from __future__ import annotations

from flowctl.connectors.target import WriteShape
from flowctl.engine.cost import IN_MEMORY_BYTES, batch_rows
from flowctl.model.projection import Columns
from flowctl.model.step import Load, Recover
from flowctl.model.table_info import TableInfo
from flowctl.plan import checks
from flowctl.plan.case import Case
from flowctl.plan.undecoded import is_within, why_decoded
from flowctl.resolve.places import letters_of
from flowctl.spec.spec import TableSpec
from flowctl.text import some


def how(step: Load | Recover, case: Case) -> tuple[str, ...]:
    """Why the step is staged, how the source is read, how the target is created and written. Empty for a direct copy
    for which neither connector has anything to report."""
    if step.table.via == "undecoded":
        return _undecoded(step, case)
    decoded = why_decoded(step, case) if case.undecoded else ""
    staged = checks.why_staged(case.table)
    reading = case.observed.reading if isinstance(step, Load) else ""  # it describes new rows, not a recovered interval
    undecodable = f"rows are decoded: {decoded}" if decoded and decoded != staged else ""
    parts = (
        undecodable,
        reading,
        _letters(case),
        _last_row(case),
        _making(step, case),
        _writing(step, case),
        _limits(step, case),
    )
    chosen = tuple(text for text in parts if text)
    if staged:
        return (f"staged, {staged}", *chosen)
    return ("direct, in one pass", *chosen) if chosen else ()


def _undecoded(step: Load | Recover, case: Case) -> tuple[str, ...]:
    if is_within(case.table):
        return ("copied inside the database by INSERT … SELECT, undecoded",)
    reading = case.observed.reading if isinstance(step, Load) else ""
    return tuple(text for text in (f"copied undecoded by {case.undecoded}", reading) if text)


def _last_row(case: Case) -> str:
    """For files: which of several rows with the same key wins."""
    table = case.table
    if table.mode not in ("merge", "scd2") or case.observed.positions != "files" or table.dedupe == "fail":
        return ""
    return "of rows with the same key the last one wins, by path and position in the file"


def _letters(case: Case) -> str:
    return f"dead letters to {letters_of(case.table)}" if case.table.dead_letters is not None else ""


def _making(step: Load | Recover, case: Case) -> str:
    return "" if step.table.seen.exists else case.rules.explain_create(step.columns.target, case.table.layout)


def _writing(step: Load | Recover, case: Case) -> str:
    """How the target is written, based on the estimated number of rows. merge and scd2 count their rows before they
    choose: an unknown number counts as 0 here."""
    if not isinstance(step.columns, Columns):
        return ""
    write = write_shape(step, case.table, step.columns, case.observed.source)
    object = case.table.target.object
    return case.rules.explain_write(object, case.observed.target, write, case.spark_url, case.spark_conf)


def write_shape(step: Load | Recover, table: TableSpec, columns: Columns, source: TableInfo | None) -> WriteShape:
    counted = table.mode in ("merge", "scd2")
    return WriteShape(
        table.mode,
        columns.target,
        table.key,
        table.layout,
        creates=not step.table.seen.exists,
        alters=any(change.alters for change in columns.changes),
        replaces=step.write_full,
        rows=step.rows.value or 0 if counted else batch_rows(step.rows, source),
        in_memory=(step.rows.bytes or 0) <= IN_MEMORY_BYTES,
    )


def _limits(step: Load | Recover, case: Case) -> str:
    """Columns of an existing table that may round or truncate values. Those whose source column has the same type are
    left out: its values fit."""
    there, source = case.observed.target, case.observed.source
    if there is None:
        return ""
    renamed = case.table.columns.rename
    alike = {(renamed.get(one.name, one.name), one.native) for one in source.columns} if source else set()
    written = {column.name for column in step.columns.target}
    limited = [one for one in case.rules.limited_columns(there, written) if (one.name, one.native) not in alike]
    return f"values must fit {some([f'{one.name} {one.native}' for one in limited])}" if limited else ""
