"""Partitions of a stream's table that come and go with rows which no change names. Pure.

State records the partitions with each commit. In :attr:`TableInfo.extra` a source describes those that are there now:
``id`` is another one once a partition was attached again, ``file`` once its rows are in another file, ``is_empty`` and
``brings_rows`` tell whether it has rows, and whether it may have had some before it became a partition.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flowctl.model.table_info import TableInfo


@dataclass(frozen=True)
class Moved:
    """What has happened to partitions, one text for each: ``gone`` and ``come`` are rows that the target has, or lacks,
    unlike the source. ``unclear`` are partitions that were truncated or rewritten: nothing tells which."""

    gone: tuple[str, ...] = ()
    come: tuple[str, ...] = ()
    unclear: tuple[str, ...] = ()


def recorded_partitions(source: TableInfo) -> dict[str, dict[str, str]]:
    """What a definition says of them; empty if the table can have none."""
    now = source.extra.get("partitions")
    return {} if now is None else {"partitions": {name: f"{one['id']} {one['file']}" for name, one in now.items()}}


def moved_partitions(recorded: Mapping[str, Any], source: TableInfo) -> Moved:
    """Nothing, if an older flowctl has recorded none, or the table has become another kind."""
    known, now = recorded.get("partitions"), source.extra.get("partitions")
    if known is None or now is None:
        return Moved()
    before = {id: (name, file) for name, (id, file) in ((name, one.split(" ")) for name, one in known.items())}
    names = {one["id"]: name for name, one in now.items()}
    left = {name for id, (name, _) in before.items() if id not in names}
    back = left & {name for name, one in now.items() if one["id"] not in before}
    rewritten = {id for id, name in names.items() if id in before and before[id][1] != now[name]["file"]}
    # A TRUNCATE of the whole table is in the log, and gives each partition another file.
    is_whole = rewritten == {*before} & {*names}
    truncated = {id for id in rewritten if now[names[id]]["is_empty"] and not is_whole}
    unclear = rewritten - truncated if not is_whole or len(before) == 1 else set()
    return Moved(
        gone=(
            *(f"{name} was detached or dropped" for name in sorted(left - back)),
            *(f"{name} was detached and attached again" for name in sorted(back)),
            *sorted(f"{names[id]} was truncated" for id in truncated),
        ),
        come=tuple(
            f"{name} was attached with rows"
            for name, one in now.items()
            if one["brings_rows"] and one["id"] not in before and name not in back
        ),
        unclear=tuple(sorted(names[id] for id in unclear)),
    )
