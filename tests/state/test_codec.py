"""State documents in the store: golden files, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from flowctl.errors import AbortRun
from flowctl.model import types
from flowctl.model.commit import IntendedColumns
from flowctl.model.position import (
    CursorPosition,
    FilesPosition,
    FileStamp,
    NoPosition,
    Position,
    Ties,
    UpstreamPosition,
    VersionPosition,
)
from flowctl.model.table_info import Column
from flowctl.model.value import TypedValue
from flowctl.state import codec
from flowctl.state import document as documents
from flowctl.state.document import StateDocument, TableState
from tests.state.examples import RECORDED, at, commit_of, intent, with_serial

GOLDEN = Path(__file__).parents[1] / "golden" / "state"


def whole_document() -> StateDocument:
    """Every field of a state document, and every kind of position."""
    document = with_serial(StateDocument(lineage="4b1f0000000000000000000000000000"), 41)
    document = documents.with_intents(document, {"orders": intent(1, 19, "11"), "customers": intent(1, 18, "12")})
    document = documents.with_commit(document, commit_of(document, "orders"), RECORDED)
    document = documents.with_commit(document, commit_of(document, "customers"), RECORDED)
    document = documents.with_intents(document, {"orders": intent(2, 20, "21"), "customers": intent(2, 20, "22")})
    document = documents.with_position(document, "customers", at(1))
    positions: dict[str, Position] = {
        "always_full": NoPosition(),
        "invoices": FilesPosition((FileStamp("invoices/1.csv", 120, "1700000000000000000"),)),
        "daily_revenue": UpstreamPosition((("orders", 1),)),
        "events": CursorPosition(TypedValue(types.INT64, 7), Ties((("0a", None), ("0b", None)))),
        "copies": VersionPosition(12),
    }
    tables = {table_id: TableState(seq=3, position=position, highest=3) for table_id, position in positions.items()}
    return StateDocument(document.lineage, 41, document.write_id, {**document.tables, **tables})


def decoded(data: bytes, name: str = "state/5.json", shapes: bytes | None = None) -> StateDocument:
    return codec.decode(data, name, lambda _: shapes)


def whole_json() -> dict[str, Any]:
    """The document with the columns and definitions of its tables, as format 1 has it."""
    return json.loads((GOLDEN / "format-1.json").read_text())


def test_a_document_is_written_as_the_golden_file_has_it() -> None:
    written = codec.encode(whole_document())
    assert written.document.decode() == (GOLDEN / "format-2.json").read_text()
    assert written.shapes.decode() == (GOLDEN / "format-2.shapes.json").read_text()
    assert written.shapes_name == json.loads(written.document)["shapes"]


def test_shapes_that_stay_the_same_keep_their_name_and_others_get_one_of_their_own() -> None:
    document = whole_document()
    first = codec.encode(document)
    later = replace(document, serial=50, shapes=first.shapes_name)
    assert codec.encode(later).shapes_name == first.shapes_name
    changed = {**document.tables, "orders": replace(document.tables["orders"], schema=())}
    assert codec.encode(replace(later, tables=changed)).shapes_name.startswith("shapes/50-")


def test_a_document_whose_shapes_are_gone_is_damaged() -> None:
    with pytest.raises(AbortRun, match=r"state/41\.json is damaged \(ValueError: shapes/41-.* is not there\)"):
        decoded(codec.encode(whole_document()).document, "state/41.json")


@pytest.mark.parametrize("format", [1, 2])
def test_every_format_ever_written_is_still_read(format: int) -> None:
    beside = GOLDEN / f"format-{format}.shapes.json"
    shapes = beside.read_bytes() if beside.exists() else None
    found = decoded((GOLDEN / f"format-{format}.json").read_bytes(), shapes=shapes)
    assert found == whole_document()


def test_what_a_sql_table_read_is_told_where_it_is_known() -> None:
    """An older flowctl did not record it, and does not look at it."""
    table = TableState(seq=3, upstream_shape="0a" * 32, highest=3)
    document = StateDocument("4b1f", 41, tables={"daily": table, "older": replace(table, upstream_shape="")})
    written = codec.encode(document)
    assert decoded(written.document, shapes=written.shapes) == document
    assert "upstream_shape" not in json.loads(written.document)["tables"]["older"]


def test_an_intent_has_its_columns_only_where_they_differ_from_the_recorded_ones() -> None:
    columns = (Column("id", types.INT64, nullable=False),)
    known = {"orders": IntendedColumns(columns, columns), "same": IntendedColumns(), "older": None}
    tables = {
        table_id: TableState(seq=1, highest=2, intent=replace(intent(2, 20, "21"), columns=one))
        for table_id, one in known.items()
    }
    document = StateDocument("4b1f", 41, tables=tables)
    written = codec.encode(document)
    assert decoded(written.document, shapes=written.shapes) == document
    intents = {id: table["intent"] for id, table in json.loads(written.document)["tables"].items()}
    assert (intents["same"]["columns"], "columns" in intents["older"]) == ({}, False)
    assert [one["name"] for one in intents["orders"]["columns"]["target"]] == ["id"]


def test_a_newer_format_is_refused_by_name() -> None:
    newer = json.dumps({"format": 3, "lineage": "x"}).encode()
    with pytest.raises(AbortRun, match=r"state/5\.json was written by a newer flowctl \(format 3, .* up to 2\)"):
        decoded(newer)


def test_a_position_kind_of_a_newer_flowctl_is_refused() -> None:
    document = whole_json()
    document["tables"]["orders"]["position"] = {"kind": "gtid", "gtids": "0-1-8"}
    with pytest.raises(AbortRun, match="unknown position kind 'gtid'"):
        decoded(json.dumps(document).encode())


@pytest.mark.parametrize(
    ("position", "why"),
    [
        ({"kind": "version", "version": "3"}, "ValueError: '3' is no number from 0 to"),
        ({"kind": "version", "version": -3}, "ValueError: -3 is no number from 0 to"),
        ({"kind": "cursor", "type": "decimal128(9, 2)", "value": "many"}, "InvalidOperation"),
        (["version", 3], "TypeError"),
    ],
)
def test_a_position_that_no_source_has_is_damage(position: object, why: str) -> None:
    document = whole_json()
    document["tables"]["orders"]["position"] = position
    with pytest.raises(AbortRun, match=rf"state/5\.json is damaged \({why}"):
        decoded(json.dumps(document).encode())


@pytest.mark.parametrize(
    "data", [b"", b"{", b'{"format": 1}', b"[]", b"\xff\xfe"], ids=["empty", "cut off", "incomplete", "list", "binary"]
)
def test_a_damaged_document_says_what_to_do(data: bytes) -> None:
    with pytest.raises(AbortRun, match=r"state/5\.json is damaged") as refusal:
        decoded(data)
    assert "state adopt" in refusal.value.hint


def test_an_older_format_is_brought_up_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    oldest = {**whole_json(), "format": -1}
    oldest["number"] = oldest.pop("serial")
    upgrades = {
        -1: lambda found: {**found, "format": 0, "serial": found["number"]},
        0: lambda found: {**found, "format": 1},
    }
    monkeypatch.setattr(codec, "UPGRADES", {**codec.UPGRADES, **upgrades})
    assert decoded(json.dumps(oldest).encode()) == whole_document()
