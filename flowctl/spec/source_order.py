"""Tables whose changes are applied by their order in the source."""

from __future__ import annotations

from flowctl.spec.spec import TableSpec


def has_source_order(table: TableSpec) -> bool:
    """Whether changes have an order, and what is older than what was applied is ignored."""
    return table.format.get("source_order") is True


def reads_letters_again(table: TableSpec) -> bool:
    """Whether dead letters can be read again: none overwrites what came after it."""
    return table.dead_letters is not None and (table.mode == "append" or has_source_order(table))
