"""Delta tables of other writers moved to every target, by value: versions, changes, kills, and what is lost."""

from __future__ import annotations

import datetime as dt
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from flowctl.crashpoints import POINTS, Point
from flowctl.storage.options import deltalake_options
from tests.e2e.delta_orders import FEED, SPEC, write_flow
from tests.e2e.flows import Flow, sqlite_rows
from tests.e2e.orders import must_be_right
from tests.e2e.targets import ENV, KINDS, Databases, Kind, kinds_with, place
from tests.services.s3 import S3Server

pytestmark = pytest.mark.server

MODES = ("append", "truncate", "merge", "scd2")
MAIN_POINTS: tuple[Point, ...] = ("after_intent", "in_commit", "after_commit")
FEEDS: Mapping[str, Mapping[str, str]] = {"without feed": {}, "with feed": FEED}
#: (target, mode, change data feed, steps). Every step once; the targets have their own matrix.
WALKS = [
    pytest.param("sqlite", "merge", "with feed", ("before_commit",), id="main", marks=pytest.mark.full),
    *(
        pytest.param("sqlite", mode, feed, POINTS, id=f"{mode}-{feed}", marks=pytest.mark.full)
        for mode in MODES
        for feed in FEEDS
        if feed == "without feed" or mode in ("merge", "scd2")
    ),
    *(
        pytest.param(kind, mode, "with feed", MAIN_POINTS, id=f"{kind}-{mode}", marks=pytest.mark.full)
        for kind in KINDS
        for mode in MODES
    ),
]


@pytest.mark.parametrize(("kind", "mode", "feed", "points"), WALKS)
def test_a_killed_apply_loses_and_doubles_nothing(
    kind: Kind, mode: str, feed: str, points: Sequence[Point], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    walk_the_protocol(kind, mode, feed, points, tmp_path, request, "sail")


@pytest.mark.full
@pytest.mark.parametrize("mode", MODES)
def test_a_killed_apply_on_spark_loses_and_doubles_nothing(
    mode: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    walk_the_protocol("delta", mode, "with feed", MAIN_POINTS, tmp_path, request, "local[2]")


def walk_the_protocol(
    kind: Kind, mode: str, feed: str, points: Sequence[Point], folder: Path, request: pytest.FixtureRequest, spark: str
) -> None:
    flow, target = Flow(folder, ENV), place(kind, folder, request.getfixturevalue)
    source = write_flow(flow, mode, target, spark, FEEDS[feed])
    for round, point in enumerate(point for point in points if mode in ("merge", "scd2") or point != "after_stage"):
        if round:
            source.change(mode, 2 * round)
        killed = flow.apply(env={"FLOWCTL_CRASH_AT": point}, expect=None)
        assert killed.code == -9, f"{point} was not reached: {killed.code}\n{killed.out}{killed.err}"
        if round:
            source.change(mode, 2 * round + 1)
        recovered = flow.apply()
        must_be_right(mode, target, source)
        assert flow.actions() == {"orders": "none"}, f"{point}: {recovered.out}{recovered.err}"


@pytest.fixture
def flow(tmp_path: Path) -> Flow:
    return Flow(tmp_path)


def rows(*notes: tuple[int, str]) -> pa.Table:
    return pa.table({"id": pa.array([id for id, _ in notes], pa.int64()), "note": [note for _, note in notes]})


def write(flow: Flow, *tables: str) -> str:
    """A flow from Delta to SQLite; returns the path of its table `orders`."""
    flow.write(SPEC.format(connection="{type: sqlite, path: target.db}", spark="sail") + "\n".join(tables) + "\n")
    path = str(flow.folder / "source" / "orders")
    write_deltalake(path, rows((1, "a"), (2, "b"), (3, "c")))
    return path


def found(flow: Flow, table: str, columns: str = "id, note") -> list[tuple[object, ...]]:
    return sqlite_rows(flow.folder / "target.db", f"SELECT {columns} FROM {table}")


DELETES = "deletes: {detect: missing_keys, action: hard}, guard: {max_deleted: 60%}"
COPIED = "  copied: {from: src:orders, to: dst:copied, mode: truncate}"
LOGGED = "  logged: {from: src:orders, to: dst:logged, mode: append}"
MERGED = f"  merged: {{from: src:orders, to: dst:merged, mode: merge, key: [id], {DELETES}}}"
KEPT = (
    "  kept: {from: src:orders, to: dst:kept, mode: scd2, key: [id], scd2: {valid_from: now},"
    " deletes: {detect: missing_keys}, guard: {max_deleted: 60%}}"
)
UPSERTED = "  upserted: {from: src:orders, to: dst:upserted, mode: merge, key: [id]}"


def test_a_plan_names_versions_and_rows_and_a_saved_one_reads_just_these(flow: Flow) -> None:
    path = write(flow, COPIED, LOGGED, MERGED, UPSERTED, KEPT)
    flow.apply()
    write_deltalake(path, rows((4, "d"), (5, "e")), mode="append")
    words = flow.run("plan", "flow.yaml", "--out", "plan.json", expect=0).words
    assert words.count("2 rows version 0 → version 1") == 4 and "changes since version 0" in words
    write_deltalake(path, rows((6, "f")), mode="append")
    DeltaTable(path).optimize.compact()
    flow.apply("--plan", "plan.json")
    for table in ("copied", "logged", "merged", "upserted", "kept"):
        assert found(flow, table) == [(1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e")]
    DeltaTable(path).delete("id = 1")
    DeltaTable(path).update({"note": "'B'"}, predicate="id = 2")
    stopped = flow.apply(expect=6)
    assert "version 4 (DELETE) of the source removed or changed rows, which append cannot do" in stopped.words
    now = [(2, "B"), (3, "c"), (4, "d"), (5, "e"), (6, "f")]
    assert found(flow, "copied") == found(flow, "merged") == now
    assert found(flow, "upserted") == sorted([(1, "a"), *now], key=repr)
    assert found(flow, "kept", "id, note, is_current") == sorted(
        [(1, "a", 0), (2, "b", 0), *((*row, 1) for row in now)], key=repr
    )


@pytest.mark.full
@pytest.mark.parametrize("is_copy", [False, True])
def test_a_saved_plan_reads_no_other_table_that_has_reached_its_versions(flow: Flow, is_copy: bool) -> None:
    path = write(flow, LOGGED, MERGED)
    flow.apply()
    shutil.copytree(path, flow.folder / "copy")
    write_deltalake(path, rows((4, "d")), mode="append")
    flow.run("plan", "flow.yaml", "--out", "plan.json", expect=0)
    shutil.rmtree(path)
    if is_copy:
        shutil.copytree(flow.folder / "copy", path)
    else:
        write_deltalake(path, rows((7, "g")))
    write_deltalake(path, rows((8, "h")), mode="append")
    refused = flow.apply("--plan", "plan.json", expect=6 if is_copy else 1)
    why = "version 1 is another one now, as the table was restored from a copy"
    assert (why if is_copy else "logged: the source src:orders was dropped and created again") in refused.words
    assert found(flow, "logged") == found(flow, "merged") == [(1, "a"), (2, "b"), (3, "c")]


@pytest.mark.full
def test_several_versions_of_a_row_between_two_runs_are_one_of_a_history_without_event_times(flow: Flow) -> None:
    path = write(flow, KEPT)
    DeltaTable(path).alter.set_table_properties(dict(FEED))
    flow.apply()
    for note in ("B", "BB"):
        DeltaTable(path).update({"note": f"'{note}'"}, predicate="id = 2")
    flow.apply()
    assert found(flow, "kept", "id, note, is_current") == [(1, "a", 1), (2, "BB", 1), (2, "b", 0), (3, "c", 1)]


def test_a_guard_counts_no_deletions_of_rows_that_came_and_went_between_two_runs(flow: Flow) -> None:
    path = write(flow, *(table.replace(", guard: {max_deleted: 60%}", "") for table in (MERGED, KEPT)))
    DeltaTable(path).alter.set_table_properties(dict(FEED))
    flow.apply()
    write_deltalake(path, rows((4, "d"), (5, "e"), (6, "f")), mode="append")
    DeltaTable(path).delete("id > 3")
    DeltaTable(path).update({"note": "'B'"}, predicate="id = 2")
    flow.apply()
    assert found(flow, "merged") == [(1, "a"), (2, "B"), (3, "c")]
    assert found(flow, "kept", "id, note, is_current") == [(1, "a", 1), (2, "B", 1), (2, "b", 0), (3, "c", 1)]
    DeltaTable(path).delete("id = 1")
    assert "1 of 3 rows would be deleted" in flow.apply(expect=6).words


@pytest.mark.full
def test_changes_that_are_lost(flow: Flow) -> None:
    """merge and scd2 read everything again and compare keys; append stops and names the next step."""
    path = write(flow, LOGGED, MERGED, KEPT)
    flow.apply()
    DeltaTable(path).delete("id = 1")
    DeltaTable(path).vacuum(0, dry_run=False, enforce_retention_duration=False)
    words = flow.run("plan", "flow.yaml", expect=6).words
    assert "the changes since version 0 are lost" in words and "was deleted (VACUUM)" in words
    assert "Replace the target's content with --full-refresh logged, or continue without these changes" in words
    flow.apply(expect=6)
    assert found(flow, "merged") == [(2, "b"), (3, "c")]
    assert found(flow, "kept", "id, is_current") == [(1, 0), (2, 1), (3, 1)]
    flow.run("state", "set", "flow.yaml", "logged", "--position", "1", "--yes", expect=0)
    write_deltalake(path, rows((4, "d")), mode="append")
    flow.apply()
    assert found(flow, "logged") == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
    flow.apply("--full-refresh", "logged")
    assert found(flow, "logged") == [(2, "b"), (3, "c"), (4, "d")]
    assert set(flow.actions().values()) == {"none"}


@pytest.mark.full
def test_a_pending_interval_that_is_lost_is_given_up(flow: Flow) -> None:
    path = write(flow, MERGED)
    flow.apply()
    write_deltalake(path, rows((4, "d")), mode="append")
    assert flow.apply(env={"FLOWCTL_CRASH_AT": "before_commit"}, expect=None).code == -9
    DeltaTable(path).update({"note": "'D'"}, predicate="id = 4")
    DeltaTable(path).vacuum(0, dry_run=False, enforce_retention_duration=False)
    flow.apply()
    assert found(flow, "merged") == [(1, "a"), (2, "b"), (3, "c"), (4, "D")]
    assert flow.actions() == {"merged": "none"}


@pytest.mark.full
def test_a_table_made_anew_stops(flow: Flow) -> None:
    path = write(flow, COPIED, LOGGED, MERGED)
    flow.apply()
    shutil.rmtree(path)
    write_deltalake(path, rows((1, "new"), (2, "b")))
    stopped = flow.apply(expect=6)
    assert stopped.words.count("the source was dropped and created again: its versions begin again") >= 2
    assert found(flow, "copied") == [(1, "new"), (2, "b")]
    assert found(flow, "logged") == found(flow, "merged") == [(1, "a"), (2, "b"), (3, "c")]
    flow.apply("--full-refresh", "logged", "--full-refresh", "merged")
    assert found(flow, "logged") == found(flow, "merged") == [(1, "new"), (2, "b")]


@pytest.mark.full
def test_an_older_version_is_read_as_it_was(flow: Flow) -> None:
    path = write(flow, '  copied: {from: "src:orders@v1", to: dst:copied, mode: truncate}')
    write_deltalake(path, pa.table({"id": [4], "note": ["d"], "more": [True]}), mode="append", schema_mode="merge")
    DeltaTable(path).delete("id < 4")
    flow.apply()
    assert found(flow, "copied", "id, note, more") == sorted(
        [(1, "a", None), (2, "b", None), (3, "c", None), (4, "d", 1)], key=repr
    )
    assert flow.actions() == {"copied": "none"}


@pytest.mark.full
@pytest.mark.parametrize("kind", kinds_with("merge"))
def test_values_of_partitions_and_types_reach_every_target(kind: Kind, flow: Flow, databases: Databases) -> None:
    target = place(kind, flow.folder, databases)
    flow.env = ENV
    listed = f'  orders: {{from: src:orders, to: "dst:{target.object}", mode: merge, key: [id], {DELETES}}}\n'
    flow.write(SPEC.format(connection=target.connection, spark="sail") + listed)
    path = str(flow.folder / "source" / "orders")

    def put(*ids: int, part: str | None) -> None:
        values = {"id": pa.array(ids, pa.int64()), "part": pa.array([part] * len(ids), pa.string())}
        moments = {
            "at": pa.array([dt.datetime(1900, 1, id, 1, 2, 3, 4, dt.UTC) for id in ids], pa.timestamp("us", "UTC"))
        }
        write_deltalake(path, pa.table({**values, **moments}), mode="append", partition_by=["part"], configuration=FEED)

    put(1, 2, part="a b/é=%")
    put(3, part=None)
    flow.apply()
    put(4, part="")
    DeltaTable(path).update({"part": "'moved'"}, predicate="id = 1")
    DeltaTable(path).delete("id = 2")
    flow.apply()
    assert target.rows(["id", "part"]) == [(1, "moved"), (3, None), (4, None)]
    moments = [dt.datetime.fromisoformat(str(at)) for _, at in target.rows(["id", "at"])]
    in_utc = [at.astimezone(dt.UTC) if at.tzinfo else at.replace(tzinfo=dt.UTC) for at in moments]
    assert in_utc == [dt.datetime(1900, 1, id, 1, 2, 3, 4, dt.UTC) for id in (1, 3, 4)]


ON_S3 = """
storage:
  s3://{bucket}:
    {{region: "{region}", endpoint: "{endpoint}",
      access_key: "${{secret:env:AK}}", secret_key: "${{secret:env:SK}}"}}
"""


@pytest.mark.full
def test_tables_in_object_storage(flow: Flow, s3_server: S3Server, s3_bucket: str) -> None:
    flow.env = {"AK": s3_server.access_key, "SK": s3_server.secret_key}
    spec = SPEC.replace("path: source", f"path: s3://{s3_bucket}/lake")
    storage = ON_S3.format(bucket=s3_bucket, region=s3_server.region, endpoint=s3_server.endpoint)
    listed = f'{MERGED}\n  "all_${{table}}": {{from: "src:sales/*", to: "dst:all_${{table}}", mode: append}}\n'
    flow.write(storage + spec.format(connection="{type: sqlite, path: target.db}", spark="sail") + listed)
    url = f"s3://{s3_bucket}/lake"
    options = deltalake_options(
        url,
        {
            url: {
                "region": s3_server.region,
                "endpoint": s3_server.endpoint,
                "access_key": s3_server.access_key,
                "secret_key": s3_server.secret_key,
            }
        },
    )
    for name in ("orders", "sales/lines"):
        write_deltalake(
            f"{url}/{name}", rows((1, "a"), (2, "b"), (3, "c")), storage_options=options, configuration=FEED
        )
    flow.apply()
    orders = DeltaTable(f"{url}/orders", storage_options=options)
    orders.delete("id = 1")
    orders.update({"note": "'B'"}, predicate="id = 2")
    write_deltalake(f"{url}/sales/lines", rows((4, "d")), mode="append", storage_options=options)
    flow.apply()
    assert found(flow, "merged") == [(2, "B"), (3, "c")]
    (other,) = {step["id"] for step in flow.plan()["steps"]} - {"merged"}
    assert found(flow, f'"{other}"') == [(1, "a"), (2, "b"), (3, "c"), (4, "d")]
    orders.vacuum(0, dry_run=False, enforce_retention_duration=False)
    orders.delete("id = 3")
    flow.apply()
    assert found(flow, "merged") == [(2, "B")]
