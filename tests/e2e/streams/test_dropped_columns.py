"""A column that is dropped while changes with it wait: those from before the DROP have it, those after it do not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.streams.flow import write_flow
from tests.e2e.streams.targets import SqlitePlace
from tests.e2e.streams.test_tables import execute

pytestmark = [pytest.mark.server, pytest.mark.full]
KEPT = [("1", "before", "kept"), ("2", "after", "kept")]


@pytest.mark.parametrize(("policy", "code", "rows"), [("keep", 0, KEPT), ("fail", 6, [KEPT[0], ("2", "row", "kept")])])
def test_rows_that_are_updated_after_the_drop(
    policy: str, code: int, rows: list[tuple[str, ...]], tmp_path: Path, source_url: str
) -> None:
    execute(source_url, "CREATE TABLE one (id int PRIMARY KEY, value varchar(9), old varchar(9))")
    execute(source_url, "INSERT INTO one VALUES (1, 'row', 'kept'), (2, 'row', 'kept')")
    table = f"mode: merge, on_schema_change: {{new_column: fail, dropped_column: {policy}}}"
    flow = write_flow(tmp_path, source_url, [], f'  one: {{from: "cdc:public.one", to: "lite:one", {table}}}')
    flow.apply()
    execute(source_url, "ALTER TABLE one ADD COLUMN more int", "UPDATE one SET value = 'before' WHERE id = 1")
    flow.apply(expect=6)  # so that what follows waits for one round
    execute(source_url, "ALTER TABLE one DROP COLUMN more", "ALTER TABLE one DROP COLUMN old")
    execute(source_url, "UPDATE one SET value = 'after' WHERE id = 2")
    flow.apply(expect=6)
    flow.write(flow.spec.read_text().replace("new_column: fail", "new_column: ignore"))
    flow.apply(expect=code)
    assert SqlitePlace(tmp_path / "lite.db").rows("one", ["id", "value", "old"]) == rows
