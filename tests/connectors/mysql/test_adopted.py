"""Tables of somebody else's: their columns number rows, or compare, write and convert texts in their own ways."""

from __future__ import annotations

import pytest

from flowctl.model import types
from flowctl.model.table_info import Column
from tests.connectors.writing import Writer, upserts

pytestmark = [pytest.mark.long_on_spark]

NUMBERED = (Column("id", types.INT32), Column("s", types.STRING))


@pytest.mark.parametrize("takes_files", [True, False])
def test_a_zero_is_no_request_for_a_number(writer: Writer, takes_files: bool, request: pytest.FixtureRequest) -> None:
    """For either way of loading; again finds the rows that are there."""
    if not takes_files:
        request.getfixturevalue("takes_no_files")
    writer.place.execute("CREATE TABLE {table} (id INT AUTO_INCREMENT PRIMARY KEY, s VARCHAR(20))")
    rows = upserts(*({"id": id, "s": f"row {id}"} for id in range(3)))
    for seq, inserted in ((1, 3), (2, 0)):
        counts = writer.write(rows, seq, "merge", columns=NUMBERED, compared=("s",), in_memory=True).counts
        assert (counts.inserted, counts.updated) == (inserted, 0)
    assert sorted(writer.place.read(["id"])) == [(0,), (1,), (2,)]
    writer.write([{"id": id, "s": "again"} for id in (0, 5)], 3, "truncate", columns=NUMBERED, replace=True)
    assert sorted(writer.place.read(["id"])) == [(0,), (5,)]
