"""What the plan refuses to write or to change in a table of somebody else's."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from flowctl.errors import TableError
from flowctl.model.table_info import ObjectName
from tests.connectors.mysql.conftest import Script
from tests.connectors.mysql.test_target import CHANGES
from tests.connectors.reading import describe
from tests.connectors.target_matrix import Place
from tests.services import mariadb

VERSIONED = "CREATE OR REPLACE TABLE t (id INT PRIMARY KEY, n INT NOT NULL) WITH SYSTEM VERSIONING"


@pytest.fixture
def alters_history(mariadb_server: mariadb.Server) -> Iterator[None]:
    mariadb_server.administer("SET GLOBAL system_versioning_alter_history = KEEP")
    yield
    mariadb_server.administer("SET GLOBAL system_versioning_alter_history = ERROR")


@pytest.mark.parametrize("action", CHANGES)
def test_a_system_versioned_table_is_not_altered(place: Place, script: Script, action: str) -> None:
    script(VERSIONED)
    (change,) = place.target.alter_statements(describe(place.target, ObjectName(("t",))), [CHANGES[action]])
    assert (change.action, change.statement) == ("fail", "") and "the table is system-versioned" in change.note
    assert change.next_step.startswith("Run SET GLOBAL system_versioning_alter_history = KEEP")


@pytest.mark.usefixtures("alters_history")
@pytest.mark.parametrize("action", CHANGES)
def test_it_is_once_the_server_allows_it(place: Place, script: Script, action: str) -> None:
    script(f"{VERSIONED}; INSERT INTO t VALUES (1, 2); DELETE FROM t")
    (change,) = place.target.alter_statements(describe(place.target, ObjectName(("t",))), [CHANGES[action]])
    assert change.action == action
    with place.target.session() as session:
        session.execute(change.statement)


def test_a_sequence_is_no_target(place: Place, script: Script) -> None:
    script("CREATE SEQUENCE s")
    refused = place.target.refuse_write(describe(place.target, ObjectName(("s",))), "append", replaces=False)
    assert refused is not None and refused.message == "s is a sequence, which takes no rows"


@pytest.mark.parametrize(
    "by", ["LIST (id) (PARTITION p VALUES IN (1))", "RANGE (id) (PARTITION p VALUES LESS THAN (5))"]
)
def test_a_row_without_a_partition(place: Place, script: Script, by: str) -> None:
    script(f"CREATE OR REPLACE TABLE t (id INT) PARTITION BY {by}")
    with (
        pytest.raises(TableError, match=r"Table has no partition for value …$") as met,
        place.target.session() as session,
    ):
        session.execute("INSERT INTO t VALUES (4711)")
    assert "ALTER TABLE … ADD PARTITION" in met.value.hint and "4711" not in str(met.value)


@pytest.mark.parametrize(
    ("statement", "told"),
    [
        ("INSERT INTO t VALUES (1, 'secret')", "Incorrect integer value … for column"),
        ("INSERT INTO t VALUES (1, 2); INSERT INTO t VALUES ('1', 5)", "Duplicate entry … for key 'PRIMARY'"),
        ("INSERT INTO t SELECT 1, CAST('secret' AS SIGNED)", "Truncated incorrect INTEGER value …"),
        ("INSERT INTO d VALUES ('it''s secret')", "Incorrect date value … for column"),
    ],
)
def test_no_message_shows_a_value(place: Place, script: Script, statement: str, told: str) -> None:
    script("CREATE OR REPLACE TABLE t (id INT PRIMARY KEY, n INT); CREATE OR REPLACE TABLE d (d DATE)")
    script("INSERT INTO t VALUES (9, 9)")
    with pytest.raises(TableError, match=re.escape(told)) as met, place.target.session() as session:
        for one in statement.split("; "):
            session.execute(one)
    assert "secret" not in str(met.value)


def test_messages_are_in_english_whatever_the_server_speaks(place: Place, script: Script) -> None:
    """Values are told from the rest by their words."""
    script("CREATE OR REPLACE TABLE t (id INT PRIMARY KEY)")
    script("SET GLOBAL lc_messages = 'de_DE'")
    try:
        with pytest.raises(TableError, match=r"Duplicate entry … for key") as met, place.target.session() as session:
            session.execute("INSERT INTO t VALUES (4711), (4711)")
    finally:
        script("SET GLOBAL lc_messages = 'en_US'")
    assert "4711" not in str(met.value)
