"""Two names of one place: which tables of a plan cannot both be written, by what the systems themselves say."""

from __future__ import annotations

from collections.abc import Mapping

from flowctl.resolve.places import SIDECARS


def shared(places: Mapping[str, str]) -> dict[str, str]:
    """What is wrong with the place of a table, by its id; ``places`` by id. Both tables of one place are refused:
    either may be the one that is right."""
    by_place: dict[str, list[str]] = {}
    for table_id, place in places.items():
        by_place.setdefault(place, []).append(table_id)
    found = {
        table_id: f"writes the same table as {', '.join(sorted({*ids} - {table_id}))}"
        for ids in by_place.values()
        if len(ids) > 1
        for table_id in ids
    }
    for table_id, place in places.items():
        for suffix, what in SIDECARS.items():
            owners = by_place.get(place.removesuffix(suffix), []) if place.endswith(suffix) else []
            if owners:
                found[table_id] = f"writes to where {', '.join(sorted(owners))} keeps its {what}"
    return found
