"""What a TRUNCATE means for the changes around it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from flowctl.changes.decoded import EVENT_AT, OP, OWN_COLUMNS, Changes
from flowctl.changes.segment import Op

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


def since_truncate(changes: Changes) -> tuple[Changes, int | None]:
    """The changes after the last TRUNCATE, and when the first one was."""
    places = _truncates(changes)
    if not len(places):
        return changes, None
    start = int(places[-1]) + 1
    return (
        Changes(
            changes.rows.slice(start),
            {name: flags[start:] for name, flags in changes.unsent.items()},
            None if changes.old is None else changes.old.slice(start),
            None if changes.has_old is None else changes.has_old[start:],
        ),
        _time(changes, int(places[0])),
    )


def with_deletions(changes: Changes, key: Sequence[str]) -> tuple[Changes, int | None]:
    """Each TRUNCATE as a deletion, at its time, of every key that the changes before it have left; and when the first
    one was."""
    import numpy as np
    import pyarrow as pa

    places = _truncates(changes)
    if not len(places):
        return changes, None
    ops = np.asarray(changes.rows[OP])
    keys = [tuple(row.values()) for row in changes.rows.select(list(key)).to_pylist()]
    olds = changes.old.select(list(key)).to_pylist() if changes.old is not None else None
    alive: dict[tuple[Any, ...], int] = {}
    order: list[tuple[int, int]] = []  # the row whose key it is, and the row whose time it is
    for place, op in enumerate(ops.tolist()):
        if op == Op.TRUNCATE:
            order += [(row, place) for row in alive.values()]
            alive = {}
            continue
        order.append((place, place))
        if olds is not None and changes.has_old is not None and changes.has_old[place]:
            alive.pop(tuple(olds[place].values()), None)
        if op == Op.DELETE:
            alive.pop(keys[place], None)
        else:
            alive[keys[place]] = place
    of_key, of_time = (np.array(column, np.int64) for column in zip(*order, strict=True)) if order else _none()
    made = {
        name: changes.rows[name].take(pa.array(of_time if name in OWN_COLUMNS else of_key))
        for name in changes.rows.column_names
    }
    is_made = of_key != of_time
    made[OP] = pa.array(np.where(is_made, Op.DELETE, ops[of_time]).astype(np.int8))
    unsent = {name: flags[of_key] & ~is_made for name, flags in changes.unsent.items()}
    old = changes.old.take(pa.array(of_key)) if changes.old is not None else None
    has_old = changes.has_old[of_key] & ~is_made if changes.has_old is not None else None
    return Changes(pa.table(made), unsent, old, has_old), _time(changes, int(places[0]))


def _none() -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    import numpy as np

    return np.zeros(0, np.int64), np.zeros(0, np.int64)


def _truncates(changes: Changes) -> npt.NDArray[np.int64]:
    import numpy as np

    return np.flatnonzero(np.asarray(changes.rows[OP]) == Op.TRUNCATE)


def _time(changes: Changes, place: int) -> int:
    import pyarrow as pa

    return int(changes.rows[EVENT_AT].cast(pa.int64())[place].as_py())
