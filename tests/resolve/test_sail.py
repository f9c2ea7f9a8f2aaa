"""What a flow cannot do on Sail is refused by name: every gap of the list, by ``validate`` or by the plan."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from flowctl.connectors.delta import gaps as delta
from flowctl.connectors.delta.features import demanding_features
from flowctl.connectors.files import gaps as files_gaps
from flowctl.connectors.target import TargetRules
from flowctl.expect.matches import Matches
from flowctl.expect.sql import Sql
from flowctl.model import types
from flowctl.model.schema_change import SchemaChange
from flowctl.model.table_info import Column
from flowctl.plan.document import action_of
from flowctl.resolve import sail
from flowctl.resolve.sail import check
from flowctl.spec.secret_text import SecretRef, SecretText
from flowctl.spec.spec import (
    ColumnRules,
    Connection,
    Cursor,
    Layout,
    ObjectSource,
    SparkSettings,
    TableSpec,
    TargetRef,
)
from tests.plan.worlds import (
    AMOUNT,
    ID,
    MARK,
    LakeDdl,
    changes,
    flow,
    high,
    observed,
    recorded,
    source,
    sql_table,
    step,
    table,
    target,
)

GAPS = {**sail.GAPS, **delta.GAPS, **files_gaps.GAPS}
FILES = Connection("inbox", "files", {"path": "inbox"}, MARK)
WEIGHT = Column("weight", types.DOUBLE)
CHECKS = {
    "sql": Sql(condition="note <> 'duck'", mark=MARK),
    "matches": Matches(column="note", pattern="^a", mark=MARK),
}

BY_SPEC: dict[str, TableSpec] = {
    "sql": sql_table("t"),
    "columns.add": table("t", columns=ColumnRules(add={"twice": "amount * 2"})),
    "expect.sql": table("t", expect=(CHECKS["sql"],)),
    "expect.matches": table("t", expect=(CHECKS["matches"],)),
    "format.csv": table("t", source=ObjectSource("inbox", ("*.csv",), True), mode="truncate", format={"escape": "\\"}),
    "layout.cluster_by": table("t", layout=Layout(cluster_by=("id",))),
    "path": table("t", target=TargetRef("lake", ("my table",))),
}


def on(url: str, spec: TableSpec):
    made = flow(spec)
    return replace(made, spark=SparkSettings(url), connections={**made.connections, "inbox": FILES})


@pytest.mark.parametrize("gap", BY_SPEC)
def test_validate_names_the_key_and_the_reason(gap: str) -> None:
    (found,) = check(on("sail", BY_SPEC[gap]), [BY_SPEC[gap]])
    assert GAPS[gap] in found.message and "local[*]" in found.hint
    assert not list(check(on("local[*]", BY_SPEC[gap]), [BY_SPEC[gap]]))


@pytest.mark.parametrize("pattern", ["*.parquet", "*.csv", "*.csv.gz"])
def test_parquet_csv_and_plain_tables_are_fine(pattern: str) -> None:
    files = table("t", source=ObjectSource("inbox", (pattern,), True), mode="truncate")
    assert not list(check(on("sail", files), [files, table("u")]))


def test_a_table_is_not_delta_because_its_source_is() -> None:
    read = table("t", source=ObjectSource("lake", ("a table",)), mode="truncate", target=TargetRef("inbox", ("my t",)))
    assert not [found for found in check(on("sail", read), [read]) if GAPS["path"] in found.message]


def test_the_whole_path_of_a_delta_target_counts_also_the_specs_folder() -> None:
    spec = on("sail", table("t"))
    lake = Connection("lake", "delta", {"path": "lake"}, MARK)
    spec = replace(spec, connections={**spec.connections, "lake": lake}, path="/tmp/my data/flow.yaml")
    (found,) = check(spec, [table("t")])
    assert "/tmp/my data/lake/" in found.message
    assert not list(check(replace(spec, path="/tmp/data/flow.yaml"), [table("t")]))
    absolute = replace(lake, options={"path": "/tmp/lake"})
    assert not list(check(replace(spec, connections={**spec.connections, "lake": absolute}), [table("t")]))
    read = table("r", source=ObjectSource("lake", ("t",)), mode="truncate", target=TargetRef("inbox", ("t",)))
    assert not list(check(spec, [read])), "flowctl's process reads a source"


def test_one_set_of_credentials() -> None:
    spec = on("sail", table("t"))
    one = {"access_key": SecretText((SecretRef("env", "A"),))}
    other = {"access_key": SecretText((SecretRef("env", "B"),))}
    assert not list(check(replace(spec, storage={"s3://lake": one}), []))
    (found,) = check(replace(spec, storage={"s3://lake": one, "s3://lake/_flowctl": other}), [])
    assert GAPS["storage"] in found.message


def test_keys_of_one_bucket_are_not_used_for_another_that_has_those_of_the_environment() -> None:
    spec = on("sail", table("t"))
    keys = {"access_key": SecretText((SecretRef("env", "A"),))}
    assert spec.state.url.startswith("s3://lake")
    (found,) = check(replace(spec, state=replace(spec.state, url="s3://state"), storage={"s3://lake": keys}), [])
    assert GAPS["storage"] in found.message
    assert not list(check(replace(spec, state=replace(spec.state, url="/state"), storage={"s3://lake": keys}), []))


def sail_step(spec: TableSpec, seen, state=None):
    from tests.plan import worlds

    made = worlds.flow(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(worlds, "flow", lambda *tables: replace(made, spark=SparkSettings("sail")))
        return step(spec, seen, state)


@pytest.mark.parametrize(
    "spec",
    [
        table(mode="scd2", key=("id",), valid_from="updated_at"),
        table(mode="append", cursor=Cursor("id")),
    ],
    ids=["scd2", "append"],
)
def test_row_hashes_of_floats_stop_the_table(spec: TableSpec) -> None:
    seen = observed(high(), source((*source().columns, WEIGHT)))
    found = sail_step(spec, seen)
    assert (action_of(found), GAPS["float"] in found.reason) == ("stop", True)
    assert found.reason.startswith("weight")
    assert action_of(step(spec, seen)) != "stop"


def test_columns_that_differ_in_case_stop_the_table_unless_one_is_left_out() -> None:
    seen = observed(high(), source((*source().columns, Column("note", types.STRING), Column("Note", types.STRING))))
    renamed = table(columns=ColumnRules(rename={"Note": "remark"}))
    found = sail_step(renamed, seen)
    assert (action_of(found), GAPS["case"] in found.reason) == ("stop", True)
    assert "note, Note" in found.reason and "columns.exclude" in found.hint
    assert action_of(step(renamed, seen)) != "stop"
    assert action_of(sail_step(table(columns=ColumnRules(exclude=("Note",))), seen)) != "stop"


def test_columns_of_whole_rows_differ_in_case_also_if_one_is_left_out() -> None:
    twins = source((*source().columns, Column("note", types.STRING), Column("Note", types.STRING)))
    seen = observed(high(), replace(twins, reads_whole_rows=True))
    found = sail_step(table(columns=ColumnRules(exclude=("Note",))), seen)
    assert (action_of(found), GAPS["case"] in found.reason) == ("stop", True)
    assert "format.schema" in found.hint and "exclude" not in found.hint


def test_partitions_by_decimals_stop_the_table() -> None:
    spec = table(layout=Layout(partition_by=("amount",)))
    found = sail_step(spec, observed(high()))
    assert (action_of(found), GAPS["partition"] in found.reason) == ("stop", True)
    assert action_of(step(spec, observed(high()))) != "stop"


def test_widening_stops_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    spec = table()
    wider = source((ID, replace(AMOUNT, type=types.Decimal(14, 2)), source().columns[2]))
    info = replace(target(), extra={**target().extra, "features": ["typeWidening"]})
    seen = observed(high(), wider, info, commit=None)
    state = recorded(spec, None, seq=0, intent_id="", highest=0)
    assert "widen" in str(changes(step(spec, seen, state)))
    found = sail_step(spec, seen, state)
    assert (action_of(found), GAPS["widen"] in found.reason) == ("stop", True)
    monkeypatch.setattr(LakeDdl, "gap", TargetRules.gap)  # a database changes its own rows
    assert sail_step(spec, seen, state) == step(spec, seen, state)


def test_features_that_ask_more_of_a_commit() -> None:
    assert demanding_features(["deletionVectors", "appendOnly"], {}) == []
    assert demanding_features(["clustering"], {"delta.appendOnly": "true"}) == ["clustering", "delta.appendOnly"]
    spec = table()
    info = replace(target(), extra={**target().extra, "features": ["icebergCompatV2"]})
    found = sail_step(spec, observed(high(), source(), info), recorded(spec, None, seq=0, intent_id="", highest=0))
    assert (action_of(found), "icebergCompatV2" in found.reason, GAPS["features"] in found.reason) == (
        "stop",
        True,
        True,
    )


@pytest.mark.parametrize("writer_version, stops", [(2, False), (4, True), (7, False)])
def test_a_feature_that_is_turned_on_in_a_table_of_an_old_protocol(writer_version: int, stops: bool) -> None:
    """Version 2 has nothing that flowctl does not know, 7 names what the table has."""
    spec = table()
    new = source((*source().columns, Column("at", types.TIMESTAMP_NTZ)))
    extra = {**target().extra, "reader_version": 1, "writer_version": writer_version}
    feature = SchemaChange("timestampNtz", "feature", None, None, "enable", "on_schema_change.new_column: add")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LakeDdl, "alter_statements", lambda self, info, changes: [feature, *changes])
        info = replace(target(), extra=extra)
        found = sail_step(spec, observed(high(), new, info), recorded(spec, None, seq=0, intent_id="", highest=0))
    assert (action_of(found) == "stop", GAPS["protocol"] in found.reason) == (stops, stops)


def test_every_gap_is_tested() -> None:
    assert set(GAPS) == {*BY_SPEC, "storage", "float", "case", "partition", "widen", "features", "protocol"}


def test_the_page_for_users_has_every_reason() -> None:
    page = (Path(__file__).parents[2] / "docs" / "sail.md").read_text()
    assert [reason for reason in GAPS.values() if reason not in page] == []
