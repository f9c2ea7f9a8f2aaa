"""Row-level security that applies to the user of a source: other rows are another definition."""

from __future__ import annotations

import psycopg
import pytest

from flowctl.connectors.source import WatermarkRequest
from flowctl.model.table_info import TableInfo
from flowctl.plan.definition import definition, differences
from flowctl.spec.spec import ReadHints
from tests.connectors.reading import opened, table
from tests.plan import worlds

T = table("public", "t")
EU = "CREATE POLICY eu ON t FOR SELECT TO reader USING (region = 'eu')"


@pytest.mark.parametrize(
    ("before", "change", "is_other"),
    [
        (EU, "ALTER POLICY eu ON t USING (region = 'us')", True),
        (EU, "DROP POLICY eu ON t", True),
        (EU, "CREATE POLICY more ON t USING (id > 5)", True),
        (EU, "CREATE POLICY less ON t AS RESTRICTIVE USING (id > 5)", True),
        (EU, "ALTER POLICY eu ON t TO other", True),
        (EU.replace("reader", "readers"), "REVOKE readers FROM reader", True),
        (EU, "ALTER TABLE t DISABLE ROW LEVEL SECURITY", True),
        (EU, "ALTER ROLE reader BYPASSRLS", True),
        (EU, "ALTER TABLE t OWNER TO reader", True),
        (EU, "ALTER POLICY eu ON t RENAME TO europe", False),
        (EU, "CREATE POLICY theirs ON t TO other USING (true)", False),
        (EU, "CREATE POLICY written ON t FOR UPDATE USING (true); ALTER TABLE t ADD n int", False),
        ("ALTER TABLE t DISABLE ROW LEVEL SECURITY", "ALTER TABLE t ENABLE ROW LEVEL SECURITY", False),  # not known
    ],
)
def test_other_policies_are_another_definition_of_a_table_with_a_cursor(
    database: psycopg.Connection, postgres_database: str, before: str, change: str, is_other: bool
) -> None:
    roles = "reader, readers, other"
    database.execute(f"DROP ROLE IF EXISTS {roles}; CREATE ROLE other; CREATE ROLE readers".encode())
    database.execute(
        "CREATE ROLE reader LOGIN PASSWORD 'reader' IN ROLE readers; CREATE TABLE t (id int PRIMARY KEY, region text);"
        "ALTER TABLE t ENABLE ROW LEVEL SECURITY; GRANT SELECT ON t TO reader"
    )
    try:
        with opened("postgres", url=postgres_database, user="reader", password="reader") as connector:
            assert connector.source is not None

            def described() -> TableInfo:
                info = connector.source.describe([T])[T]
                assert info is not None
                return info

            database.execute(before.encode())
            first = described()
            database.execute(change.encode())
            now = described()
            hints = [connector.source.explain_read(WatermarkRequest(T, info), ReadHints()) for info in (first, now)]
    finally:
        database.execute(f"DROP TABLE t; DROP OWNED BY {roles}; DROP ROLE {roles}".encode())
    for info, hint in zip((first, now), hints, strict=True):
        assert ("row-level security may hide rows from this user" in hint) == bool(info.view)
    for spec in (worlds.table(), worlds.table(mode="truncate", cursor=None), worlds.table(cursor=None)):
        found = differences(definition(spec, first), definition(spec, now))
        wanted = is_other and spec.cursor is not None
        assert found == (("row-level security shows other rows of the source",) if wanted else ())
    with_cursor, without = worlds.table(), worlds.table(cursor=None)
    (gone,) = differences(definition(with_cursor, first), definition(without, first))
    assert gone.startswith("cursor:")
