"""Many changes of a row become one: its state after a batch, or for a history its state at each event time.

A row is identified by its key. An unchanged value that was not sent is that of the row's previous change, column by
column; if the batch has none, it is still that of the target, and stays *open* for the caller to complete. An update
of the key is a deletion of the old key and an update of the new one: the row's open values are then those of the key
that the row had before the batch (its *origin*).

Most keys never change: their rows are folded by numpy for all keys at the same time. Rows whose keys are connected by
changes of keys are followed one by one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from flowctl.changes.decoded import EVENT_AT, OP, OWN_COLUMNS, Changes
from flowctl.changes.segment import Op
from flowctl.changes.truncation import since_truncate, with_deletions

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    Ints = npt.NDArray[np.int64]
    Flags = npt.NDArray[np.bool_]

#: Stands for "not in the batch".
_NONE = -1


@dataclass(frozen=True)
class Folded:
    """``rows`` has the table's columns, ``operations`` a ``U`` or ``D`` for each row: the key's state now, and that it
    is gone. With versions there may be several rows per key, and ``rows`` has :data:`EVENT_AT` too.

    ``open`` flags, by column, values that only the target has; ``origins`` has the key under which it has them, for
    all rows. ``truncated_at`` (microseconds since 1970, None: never) is when the first TRUNCATE removed everything that
    was there before the batch; what came before the last one is left out, but for versions."""

    rows: pa.Table
    operations: pa.Array
    open: Mapping[str, Flags]
    origins: pa.Table
    truncated_at: int | None = None


def fold(changes: Changes, key: Sequence[str], *, versions: bool = False) -> Folded:
    """One row for each key; with ``versions``, one for each key and event time. In the order of their last changes."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    changes, truncated_at = with_deletions(changes, key) if versions else since_truncate(changes)
    rows = changes.rows
    columns = [name for name in rows.column_names if name not in OWN_COLUMNS]
    count = rows.num_rows
    ids, old_ids = _key_ids(changes, key)
    ops = np.asarray(rows[OP].combine_chunks() if count else pa.array([], pa.int8()))
    times = np.asarray(rows[EVENT_AT].cast(pa.int64())) if versions else np.zeros(count, np.int64)
    moved = old_ids >= 0
    is_followed = _connected(ids, old_ids, moved)
    made = [_at_once(changes, columns, ids, ops, times, ~is_followed)]
    if is_followed.any():
        made.append(_followed(changes, columns, ids, old_ids, ops, times, is_followed))
    state = _joined(made)
    order = np.lexsort((state.keys, state.places))
    taken = {name: places[order] for name, places in state.places_of.items()}
    origins, keys, places = state.origins[order], state.keys[order], state.places[order]
    gone = state.gone[order]
    all_keys = _keys_by_id(changes, key, ids, old_ids)
    found: dict[str, Any] = {}
    for name in columns:
        if name in key:
            found[name] = all_keys[name].take(pa.array(keys))
        else:
            found[name] = _take(rows[name], np.where(gone, _NONE, taken[name]))
    if versions:
        found[EVENT_AT] = rows[EVENT_AT].take(pa.array(places))
    is_open = {name: flags for name in columns if name not in key and (flags := (taken[name] == _NONE) & ~gone).any()}
    return Folded(
        rows=pa.table(found),
        operations=pc.if_else(pa.array(gone), "D", "U"),
        open=is_open,
        origins=pa.table({name: all_keys[name].take(pa.array(origins)) for name in key}),
        truncated_at=truncated_at,
    )


def parts_of(changes: Changes, key: Sequence[str], count: int) -> Ints:
    """For changes that are too many to be folded at once: the part, below ``count``, in which each is folded. Keys that
    are connected by changes of keys are in one part; a TRUNCATE (-1) is in each. Only the key columns are looked at."""
    import numpy as np

    ids, old_ids = _key_ids(changes, key)
    parts = ids % count
    parts[_connected(ids, old_ids, old_ids >= 0)] = 0
    parts[np.asarray(changes.rows[OP]) == Op.TRUNCATE] = -1
    return parts


@dataclass(frozen=True)
class _States:
    """One element for each row of the result: its key and the key of its origin, the place of its last change, whether
    it is gone then, and for each column the place of the change that set the value (-1: the target has it)."""

    keys: Ints
    origins: Ints
    places: Ints
    gone: Flags
    places_of: dict[str, Ints]


def _at_once(changes: Changes, columns: Sequence[str], ids: Ints, ops: Any, times: Ints, chosen: Flags) -> _States:
    """Keys that do not change."""
    import numpy as np

    places = np.flatnonzero(chosen)
    order = places[np.lexsort((places, ids[places]))]
    sorted_ids, sorted_times = ids[order], times[order]
    is_last = np.ones(len(order), bool)
    if len(order):
        is_last[:-1] = (sorted_ids[1:] != sorted_ids[:-1]) | (sorted_times[1:] != sorted_times[:-1])
    last = order[is_last]
    set_by = {}
    for name in columns:
        flags = changes.unsent.get(name)
        set_by[name] = last if flags is None else _last_sent(order, sorted_ids, ~flags[order])[is_last]
    return _States(ids[last], ids[last], last, ops[last] == Op.DELETE, set_by)


def _last_sent(order: Ints, sorted_ids: Ints, sent: Flags) -> Ints:
    """For each change in ``order``, the place of the last change of its key up to it that sent the value; -1: none."""
    import numpy as np

    span = int(order.max()) + 2 if len(order) else 1
    # Ids are ascending, so a running maximum begins anew with each.
    running = np.maximum.accumulate(sorted_ids * span + np.where(sent, order + 1, 0)) if len(order) else order
    return running - sorted_ids * span - 1


@dataclass
class _Row:
    """A row that is being followed: the key it had before the batch, and what set its values since."""

    origin: int
    set_by: dict[str, int] = field(default_factory=dict)


def _followed(
    changes: Changes,
    columns: Sequence[str],
    ids: Ints,
    old_ids: Ints,
    ops: Any,
    times: Ints,
    chosen: Flags,
) -> _States:
    """Keys that change, or to which others change: the changes are applied one after the other."""
    import numpy as np

    there: dict[int, _Row | None] = {}
    found: list[tuple[int, int, bool, _Row]] = []
    ended: dict[tuple[int, int], int] = {}

    def ends(key: int, place: int, row: _Row | None) -> None:
        """Notes the state of a key; a later one of the same time replaces it."""
        there[key] = row
        state = (key, place, row is None, _Row(row.origin, dict(row.set_by)) if row else _Row(key))
        at = ended.setdefault((key, int(times[place])), len(found))
        if at == len(found):
            found.append(state)
        else:
            found[at] = state

    for place in np.flatnonzero(chosen).tolist():
        key, old, op = int(ids[place]), int(old_ids[place]), int(ops[place])
        if op == Op.DELETE:
            ends(key, place, None)
            continue
        if op == Op.INSERT:
            ends(key, place, _Row(key, dict.fromkeys(columns, place)))
            continue
        before = old if old >= 0 else key
        row = there[before] if before in there else _Row(before)
        row = row or _Row(before)
        if old >= 0:
            ends(old, place, None)
        sent = {name: place for name in columns if name not in changes.unsent or not changes.unsent[name][place]}
        ends(key, place, _Row(row.origin, {**row.set_by, **sent}))
    return _States(
        np.array([state[0] for state in found], np.int64),
        np.array([state[3].origin for state in found], np.int64),
        np.array([state[1] for state in found], np.int64),
        np.array([state[2] for state in found], bool),
        {name: np.array([state[3].set_by.get(name, _NONE) for state in found], np.int64) for name in columns},
    )


def _joined(parts: Sequence[_States]) -> _States:
    import numpy as np

    if len(parts) == 1:
        return parts[0]
    return _States(
        np.concatenate([part.keys for part in parts]),
        np.concatenate([part.origins for part in parts]),
        np.concatenate([part.places for part in parts]),
        np.concatenate([part.gone for part in parts]),
        {name: np.concatenate([part.places_of[name] for part in parts]) for name in parts[0].places_of},
    )


def _connected(ids: Ints, old_ids: Ints, moved: Flags) -> Flags:
    """The changes of keys that are an old or a new key of some change. They are followed all together, so it does not
    matter which of them are connected."""
    import numpy as np

    if not moved.any():
        return np.zeros(len(ids), bool)
    touched = np.zeros(int(max(ids.max(), old_ids.max())) + 1, bool)
    touched[ids[moved]] = True
    touched[old_ids[moved]] = True
    return touched[ids]


def _key_ids(changes: Changes, key: Sequence[str]) -> tuple[Ints, Ints]:
    """A number for each key, of the rows and of what they were before (-1: the key has not changed)."""
    import numpy as np
    import pyarrow as pa

    count = changes.rows.num_rows
    if changes.old is None or changes.has_old is None:
        return numbered([changes.rows[name].combine_chunks() for name in key], count), np.full(count, _NONE, np.int64)
    places = np.flatnonzero(changes.has_old)
    at = pa.array(places)
    arrays = [pa.concat_arrays([*changes.rows[name].chunks, *changes.old[name].take(at).chunks]) for name in key]
    numbers = numbered(arrays, count + len(places))
    ids, old_ids = numbers[:count], np.full(count, _NONE, np.int64)
    old_ids[places] = numbers[count:]
    return ids, np.where(old_ids == ids, _NONE, old_ids)


def numbered(arrays: Sequence[pa.Array], count: int) -> Ints:
    import numpy as np

    numbers = np.zeros(count, np.int64)
    for array in arrays:
        encoded = array.dictionary_encode(null_encoding="encode")
        codes = np.asarray(encoded.indices).astype(np.int64)
        _, numbers = np.unique(numbers * max(1, len(encoded.dictionary)) + codes, return_inverse=True)
    return numbers.astype(np.int64)


def _keys_by_id(changes: Changes, key: Sequence[str], ids: Ints, old_ids: Ints) -> dict[str, Any]:
    """The values of each key column by the number of the key."""
    import numpy as np

    size = int(max(ids.max(initial=_NONE), old_ids.max(initial=_NONE))) + 1
    place = np.full(size, _NONE, np.int64)
    old_place = np.full(size, _NONE, np.int64)
    place[ids] = np.arange(len(ids))
    is_old = old_ids >= 0
    old_place[old_ids[is_old]] = np.flatnonzero(is_old)
    found = {}
    for name in key:
        values = _take(changes.rows[name], place)
        if changes.old is not None and (place == _NONE).any():
            olds = _take(changes.old[name], np.where(place == _NONE, old_place, _NONE))
            values = _chosen(place == _NONE, olds, values)
        found[name] = values
    return found


def _chosen(flags: Flags, yes: Any, no: Any) -> Any:
    import numpy as np
    import pyarrow as pa

    count = len(flags)
    both = pa.concat_arrays([*_chunks(yes), *_chunks(no)])
    return both.take(pa.array(np.where(flags, np.arange(count), np.arange(count) + count)))


def _chunks(values: Any) -> list[Any]:
    import pyarrow as pa

    return list(values.chunks) if isinstance(values, pa.ChunkedArray) else [values]


def _take(values: Any, places: Ints) -> Any:
    """Null where the place is -1."""
    import pyarrow as pa

    is_none = places == _NONE
    if not is_none.any():
        return values.take(pa.array(places))
    return values.take(pa.array(places, mask=is_none))
