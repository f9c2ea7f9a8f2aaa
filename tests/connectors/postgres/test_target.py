"""What only a PostgreSQL target has: staging tables, attempts, locks and a server that may still be committing."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from flowctl.connectors.postgres import commits
from flowctl.connectors.postgres.session import POSTGRES
from flowctl.connectors.postgres.staging import Accepted, accept, copy_frame, stage_table
from flowctl.connectors.sql import target as sql_target
from flowctl.connectors.sql import timeouts
from flowctl.connectors.target import CommitLookup
from flowctl.engine.batch import OnEngine
from flowctl.errors import AccessDenied, StateConflict, StoppedByPolicy, TableError, TransientError
from flowctl.model import types
from flowctl.model.commit import RowCounts
from flowctl.model.mode import Mode
from flowctl.model.schema_change import SchemaChange
from flowctl.model.table_info import Column, ObjectName
from flowctl.storage.buffer import Buffer
from tests.connectors.reading import describe
from tests.connectors.target_matrix import FACTORIES, Place
from tests.connectors.writing import COLUMNS, Writer, gone, upserts

STAGES = "SELECT relname FROM pg_class WHERE relkind = 'r' AND relname LIKE '\\_flowctl\\_stage%'"
ROW = {"id": 1, "name": "a", "amount": None}


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path, scratch: Buffer) -> Iterator[Place]:
    with FACTORIES["postgres"](request, tmp_path, scratch) as opened:
        yield opened


def stages(place: Place) -> list[str]:
    with place.target.client.connect() as connection:
        return [name for (name,) in connection.execute(STAGES).fetchall()]


def test_rows_of_a_task_that_was_tried_twice_count_once(writer: Writer) -> None:
    target = writer.place.target
    job = writer.job(1, "append")
    with stage_table(target.client, "public", job, COLUMNS, None) as stage, target.client.connect() as connection:
        frame = writer.frame([ROW, {**ROW, "id": 2}], COLUMNS).coalesce(1)
        copy_frame(frame, COLUMNS, target.client.conninfo(), POSTGRES.table(stage), {})
        accepted = copy_frame(frame, COLUMNS, target.client.conninfo(), POSTGRES.table(stage), {})
        with connection.transaction():
            assert accept(connection, stage, accepted) == 2
        assert connection.execute(f"SELECT id FROM {POSTGRES.table(stage)} ORDER BY id").fetchall() == [(1,), (2,)]


def test_a_part_with_other_rows_than_reported_is_not_committed(writer: Writer) -> None:
    target = writer.place.target
    job = writer.job(1, "append")
    with stage_table(target.client, "public", job, COLUMNS, None) as stage, target.client.connect() as connection:
        (report,) = copy_frame(
            writer.frame([ROW], COLUMNS).coalesce(1), COLUMNS, target.client.conninfo(), POSTGRES.table(stage), {}
        )
        with pytest.raises(TransientError, match="staged rows are missing"), connection.transaction():
            accept(connection, stage, [Accepted(report.transaction, 2)])


def test_an_attempt_that_still_copies_is_ended_and_not_among_the_rows(writer: Writer) -> None:
    """Its executor is suspended, or was given up: nobody would wait for it in vain."""
    target = writer.place.target
    job = writer.job(1, "append")
    with stage_table(target.client, "public", job, COLUMNS, None) as stage, target.client.connect() as connection:
        table = POSTGRES.table(stage)
        accepted = copy_frame(writer.frame([ROW], COLUMNS).coalesce(1), COLUMNS, target.client.conninfo(), table, {})
        with (
            pytest.raises(psycopg.OperationalError),
            psycopg.connect(target.client.conninfo()) as stale,
            stale.cursor().copy(f"COPY {table} FROM STDIN") as copying,
        ):
            copying.write("7\tlate\t\\N\n")
            with connection.transaction():
                assert accept(connection, stage, accepted) == 1
            while True:
                copying.write("7\tlate\t\\N\n" * 1000)
        assert connection.execute(f"SELECT id FROM {table}").fetchall() == [(1,)]


def test_a_staging_table_that_somebody_else_keeps_is_named(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    target = writer.place.target
    monkeypatch.setattr(timeouts, "STAGE_LOCK", 0.2)
    with (
        stage_table(target.client, "public", writer.job(1, "append"), COLUMNS, None) as stage,
        target.client.connect() as other,
        target.client.connect() as connection,
        other.transaction(),
    ):
        other.execute(f"LOCK TABLE {POSTGRES.table(stage)} IN SHARE ROW EXCLUSIVE MODE")
        with pytest.raises(TransientError, match="another session locked it"), connection.transaction():
            accept(connection, stage, [])


@pytest.mark.long_on_spark
def test_a_writer_that_stops_in_its_commit_is_ended_after_the_leases_ttl(
    writer: Writer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The void that a recovering run begins with does not wait for its end."""
    monkeypatch.setenv("FLOWCTL_LEASE_SECONDS", "1")
    writer.write([ROW], 1)
    inside, go = threading.Event(), threading.Event()
    errors: list[BaseException] = []

    def stop() -> None:
        inside.set()
        assert go.wait(60)

    def stopped() -> None:
        with pytest.raises((TransientError, StateConflict)) as raised:
            writer.write([{**ROW, "id": 2}], 2, intent="stale", before_commit=stop)
        errors.append(raised.value)

    stale = threading.Thread(target=stopped)
    stale.start()
    assert inside.wait(120)
    assert writer.void(2, intent="the void").void
    go.set()
    stale.join()
    assert len(errors) == 1
    assert writer.place.read(["id"]) == [(1,)]


def test_a_new_table_is_the_staging_table_under_its_name(writer: Writer) -> None:
    commit = writer.write([ROW, {**ROW, "id": 2}], 1)
    assert (commit.counts.inserted, commit.counts.deleted) == (2, 0)
    with writer.place.target.client.connect() as connection:
        (kept,) = connection.execute(
            "SELECT relpersistence FROM pg_class WHERE oid = %s::regclass", [POSTGRES.table(writer.place.object.parts)]
        ).fetchall()
    assert kept == ("p",), "a server that crashes would empty it"
    assert stages(writer.place) == []
    assert sorted(writer.place.read(["id", "name"])) == [(1, "a"), (2, "a")]


def test_a_line_that_is_empty_or_would_end_the_copy_is_a_row(writer: Writer) -> None:
    """With one column, nothing else stands in its line."""
    texts = [None, "", "\\.", "a\n\\.\nb", " ", '"']
    column = Column("name", types.STRING)
    writer.write([{"name": text} for text in texts], 1, columns=(column,))
    assert sorted(writer.place.read(["name"]), key=repr) == sorted(((text,) for text in texts), key=repr)


def test_a_table_of_nulls_keeps_its_rows(writer: Writer) -> None:
    writer.write([{"id": None}, {"id": None}, {"id": 1}], 1, columns=(Column("id", types.INT64),))
    assert sorted(writer.place.read(["id"]), key=repr) == [(1,), (None,), (None,)]


def test_a_table_that_another_makes_meanwhile_is_left_alone(writer: Writer) -> None:
    conninfo, table = writer.place.target.client.conninfo(), POSTGRES.table(writer.place.object.parts)

    def making(batches):  # type: ignore[no-untyped-def]
        import psycopg

        for batch in batches:
            with psycopg.connect(conninfo) as connection:
                connection.execute(f"CREATE TABLE IF NOT EXISTS {table} (theirs text)")
            yield batch

    job = writer.job(1, "append")
    frame = writer.frame([ROW], COLUMNS).coalesce(1)
    with pytest.raises(StoppedByPolicy, match="was not made by this flow"):
        writer.place.target.write(writer.spark, OnEngine(frame.mapInArrow(making, frame.schema)), job)
    assert writer.committed() is None
    assert writer.place.read(["theirs"]) == []
    assert stages(writer.place) == []


def test_staging_tables_go_with_their_try_and_leftovers_with_the_next_fence(writer: Writer) -> None:
    target = writer.place.target
    dead = stage_table(target.client, "public", writer.job(1, "append"), COLUMNS, None)
    dead.__enter__()  # and never left: its process died
    assert len(stages(writer.place)) == 1
    writer.write([ROW], 2)
    assert stages(writer.place) == []


def test_credentials_are_in_no_plan(writer: Writer, capsys: pytest.CaptureFixture[str]) -> None:
    from flowctl.connectors.postgres.executors import PartWriter

    secret = writer.place.target.client.password
    copied = PartWriter(writer.place.target.client.conninfo(), "stage", [("id", "bigint")], silence=60)
    writer.frame([ROW], COLUMNS).select("id").mapInArrow(copied.copy, "rows BIGINT").explain(extended=True)
    assert secret
    assert secret not in capsys.readouterr().out


def test_a_void_waits_for_the_stale_writer_that_is_committing_and_tells_that_it_landed(writer: Writer) -> None:
    writer.write([ROW], 1)
    told, landed = in_flight(writer, outcome=None)
    assert landed.seq == 2
    assert isinstance(told, StateConflict)
    assert sorted(writer.place.read(["id"])) == [(1,), (2,)]


def test_a_void_lands_when_the_stale_writer_gives_up(writer: Writer) -> None:
    writer.write([ROW], 1)
    told, landed = in_flight(writer, outcome=RuntimeError("lease lost"))
    assert isinstance(landed, RuntimeError)
    assert (told.seq, told.intent_id) == (2, "the void")
    assert writer.place.read(["id"]) == [(1,)]


def in_flight(writer: Writer, outcome: Exception | None) -> tuple[object, object]:
    """A write of number 2 stops right before its commit, a void of number 2 begins, and the write goes on."""
    inside, go = threading.Event(), threading.Event()
    results: dict[str, object] = {}

    def hold() -> None:
        inside.set()
        assert go.wait(60)
        if outcome is not None:
            raise outcome

    def run(name: str, action: Callable[[], object]) -> None:
        try:
            results[name] = action()
        except Exception as error:  # noqa: BLE001 - the test looks at it
            results[name] = error

    stale_writer = threading.Thread(
        target=run,
        args=(
            "stale writer",
            lambda: writer.write([{**ROW, "id": 2}], 2, intent="the stale writer", before_commit=hold),
        ),
    )
    stale_writer.start()
    assert inside.wait(120)
    void = threading.Thread(target=run, args=("void", lambda: writer.void(2, intent="the void")))
    void.start()
    wait_for_a_lock(writer.place)
    go.set()
    stale_writer.join()
    void.join()
    return results["void"], results["stale writer"]


def wait_for_a_lock(place: Place) -> None:
    """Until some session waits for another one's transaction: the void does."""
    waiting = "SELECT count(*) FROM pg_locks WHERE NOT granted"
    with place.target.client.connect() as connection:
        while connection.execute(waiting).fetchone() == (0,):
            connection.execute("SELECT pg_sleep(0.05)")


def test_a_table_made_anew_under_its_name_is_another_target(writer: Writer) -> None:
    writer.write([ROW], 1)
    job = writer.job(2, "append")
    writer.place.execute("DROP TABLE {table}")
    writer.place.execute("CREATE TABLE {table} (id bigint, name text, amount numeric(12,2))")
    with pytest.raises(StateConflict, match="was replaced since this sequence number was begun"):
        writer.place.target.write(writer.spark, writer.batch([ROW], COLUMNS), job)
    assert writer.place.read(["id"]) == []


@pytest.mark.long_on_spark
@pytest.mark.parametrize("mode", ["append", "merge", "truncate"])
def test_nobody_puts_another_table_under_its_name_during_the_commit(
    writer: Writer, mode: Mode, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer.write([ROW], 1, mode)
    apply, refused = sql_target.apply_change, []

    def swap_first(*job: Any) -> RowCounts:
        try:
            writer.place.execute("SET lock_timeout = '1s'; ALTER TABLE {table} RENAME TO before")
        except psycopg.errors.LockNotAvailable as error:
            refused.append(error)
        return apply(*job)

    monkeypatch.setattr(sql_target, "apply_change", swap_first)
    writer.write(upserts({**ROW, "id": 2}) if mode == "merge" else [ROW], 2, mode)
    assert len(refused) == 1


@pytest.mark.parametrize("mode", ["append", "merge"])
def test_a_schema_that_is_not_there_is_planned_and_made(writer: Writer, mode: Mode) -> None:
    elsewhere = Writer(writer.spark, replace(writer.place, object=ObjectName(("of ours", "orders"))))
    job = elsewhere.job(1, mode)
    assert job.create[0] == 'CREATE SCHEMA IF NOT EXISTS "of ours"'
    assert elsewhere.write(upserts(ROW) if mode == "merge" else [ROW], 1, mode).counts.inserted == 1
    assert elsewhere.job(2, mode).statements == ()
    with writer.place.target.client.connect() as connection:
        assert connection.execute('SELECT id, name FROM "of ours".orders').fetchall() == [(1, "a")]
        assert connection.execute("SELECT count(*) FROM pg_namespace WHERE nspname = 'of ours'").fetchone() == (1,)


@pytest.mark.server
def test_what_is_not_there_is_no_refusal_of_the_whole_connection(place: Place) -> None:
    """Such an error stops all tables at once."""
    with pytest.raises(TableError, match="does not exist") as missing, place.target.client.connect() as connection:
        connection.execute("SELECT * FROM nowhere")
    assert not isinstance(missing.value, AccessDenied)
    for wrong in ({"database": "nowhere"}, {"user": "nobody"}, {"password": "wrong"}):
        with pytest.raises(AccessDenied), replace(place.target.client, **wrong).connect():
            pass


def test_columns_that_others_have_added_keep_their_values(writer: Writer) -> None:
    writer.write(upserts(ROW), 1, "merge")
    writer.place.execute("ALTER TABLE {table} ADD COLUMN theirs text DEFAULT 'kept'")
    writer.write(upserts({**ROW, "name": "b"}, {**ROW, "id": 2}), 2, "merge")
    assert sorted(writer.place.read(["id", "name", "theirs"])) == [(1, "b", "kept"), (2, "a", "kept")]


@pytest.mark.long_on_spark
@pytest.mark.parametrize("event", ["INSERT", "UPDATE", "DELETE"])
def test_a_trigger_that_leaves_rows_out_is_no_commit(writer: Writer, event: str) -> None:
    writer.write(upserts(ROW, {**ROW, "id": 2}), 1, "merge")
    writer.place.execute(
        "CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';"
        f"CREATE TRIGGER one BEFORE {event} ON {{table}} FOR EACH ROW EXECUTE FUNCTION nothing()"
    )
    with pytest.raises(TableError, match="accepted 0 of 1 rows: one of its triggers or rules"):
        writer.write([*upserts({**ROW, "name": "b"}, {**ROW, "id": 3}), gone(2)], 2, "merge")
    assert writer.committed().seq == 1
    assert sorted(writer.place.read(["id", "name"])) == [(1, "a"), (2, "a")]


def test_a_rule_that_keeps_what_is_replaced_is_no_commit(writer: Writer) -> None:
    writer.write([ROW, {**ROW, "id": 2}], 1, "truncate")
    writer.place.execute("CREATE RULE kept AS ON DELETE TO {table} WHERE old.id = 2 DO INSTEAD NOTHING")
    with pytest.raises(TableError, match="accepted 1 of 2 rows: one of its triggers or rules"):
        writer.write([ROW], 2, "truncate")
    assert sorted(writer.place.read(["id"])) == [(1,), (2,)]


def test_a_row_whose_key_is_there_twice_is_updated_twice(writer: Writer) -> None:
    writer.write([ROW, {**ROW, "name": "b"}], 1)
    assert writer.write(upserts({**ROW, "name": "b"}), 2, "merge").counts.updated == 1
    assert writer.place.read(["id", "name"]) == [(1, "b"), (1, "b")]


def test_rows_that_others_refer_to_are_replaced_under_a_deferred_constraint(writer: Writer) -> None:
    writer.write([ROW], 1, "truncate")
    writer.place.execute(
        "ALTER TABLE {table} ADD PRIMARY KEY (id); CREATE TABLE child AS SELECT id FROM {table};"
        "ALTER TABLE child ADD FOREIGN KEY (id) REFERENCES {table} DEFERRABLE INITIALLY DEFERRED"
    )
    assert writer.write([ROW, {**ROW, "id": 2}], 2, "truncate").counts.inserted == 2
    assert sorted(writer.place.read(["id"])) == [(1,), (2,)]


@pytest.mark.parametrize("in_memory", [False, True])
def test_a_value_that_the_targets_own_type_refuses_is_named(writer: Writer, in_memory: bool) -> None:
    writer.place.execute("CREATE TABLE {table} (id bigint, name varchar(3), amount numeric(12,2))")
    with pytest.raises(TableError, match='column "name"') as raised:
        writer.write([{**ROW, "name": "secret value"}], 1, in_memory=in_memory)
    assert "secret value" not in str(raised.value)
    assert writer.committed() is None


@pytest.mark.long_on_spark
def test_wider_types_are_changed_in_place(writer: Writer) -> None:
    target, object = writer.place.target, writer.place.object
    narrow = (Column("id", types.INT32), Column("amount", types.Decimal(10, 2)), Column("day", types.DATE))
    wide = (Column("id", types.INT64), Column("amount", types.Decimal(12, 4)), Column("day", types.TIMESTAMP_NTZ))
    writer.write([{"id": 1, "amount": None, "day": None}], 1, columns=narrow)
    info = describe(target, object)
    changes = target.alter_statements(
        info,
        [
            SchemaChange(new.name, "wider_type", old.type, new.type, "widen", "on_schema_change.wider_type: widen")
            for old, new in zip(narrow, wide, strict=True)
        ],
    )
    assert all(writer.place.capabilities.target.widens(change.old, change.new) for change in changes)
    writer.write(
        [{"id": 2**40, "amount": None, "day": None}],
        2,
        columns=wide,
        alter=changes,
    )
    assert [column.type for column in describe(target, object).columns] == [column.type for column in wide]
    assert sorted(writer.place.read(["id"])) == [(1,), (2**40,)]


class CountingConnection(psycopg.Connection[Any]):
    queries = 0

    def execute(self, *arguments: Any, **options: Any) -> psycopg.Cursor[Any]:
        self.queries += 1
        return super().execute(*arguments, **options)


def test_commits_are_asked_for_in_as_many_queries_whatever_the_number_of_tables(postgres_database: str) -> None:
    lookups = [CommitLookup("lineage", name, ObjectName((name,))) for name in ("orders", "items", "people")]
    with CountingConnection.connect(postgres_database) as connection:
        assert commits.newest(connection, lookups) == dict.fromkeys(("orders", "items", "people"))
        assert connection.queries == 2  # the schema of bare names, and the tables for commits: none
