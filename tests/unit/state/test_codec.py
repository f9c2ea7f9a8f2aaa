"""State documents in the store: golden files, and what is refused."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from flowctl.errors import AbortRun
from flowctl.model import types
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
from flowctl.model.value import TypedValue
from flowctl.state import codec
from flowctl.state import document as documents
from flowctl.state.document import StateDocument, TableState
from tests.unit.state.examples import RECORDED, at, commit_of, intent, with_serial

GOLDEN = Path(__file__).parents[2] / "golden" / "state"


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


def test_a_document_is_written_as_the_golden_file_has_it() -> None:
    assert codec.encode(whole_document()).decode() == (GOLDEN / "format-1.json").read_text()


@pytest.mark.parametrize("path", sorted(GOLDEN.glob("format-*.json")), ids=lambda path: path.stem)
def test_every_format_ever_written_is_still_read(path: Path) -> None:
    assert codec.decode(path.read_bytes(), path.name) == whole_document()


def test_what_a_sql_table_read_is_told_where_it_is_known() -> None:
    """An older flowctl did not record it, and does not look at it."""
    table = TableState(seq=3, upstream_shape="0a" * 32, highest=3)
    document = StateDocument("4b1f", 41, tables={"daily": table, "older": replace(table, upstream_shape="")})
    written = codec.encode(document)
    assert codec.decode(written, "state/41.json") == document
    assert "upstream_shape" not in json.loads(written)["tables"]["older"]


def test_a_newer_format_is_refused_by_name() -> None:
    newer = json.dumps({"format": 2, "lineage": "x"}).encode()
    with pytest.raises(AbortRun, match=r"state/5\.json was written by a newer flowctl \(format 2, .* up to 1\)"):
        codec.decode(newer, "state/5.json")


def test_a_position_kind_of_a_newer_flowctl_is_refused() -> None:
    document = json.loads(codec.encode(whole_document()))
    document["tables"]["orders"]["position"] = {"kind": "lsn", "lsn": "0/16B3748"}
    with pytest.raises(AbortRun, match="unknown position kind 'lsn'"):
        codec.decode(json.dumps(document).encode(), "state/5.json")


@pytest.mark.parametrize(
    "data", [b"", b"{", b'{"format": 1}', b"[]", b"\xff\xfe"], ids=["empty", "cut off", "incomplete", "list", "binary"]
)
def test_a_damaged_document_says_what_to_do(data: bytes) -> None:
    with pytest.raises(AbortRun, match=r"state/5\.json is damaged") as refusal:
        codec.decode(data, "state/5.json")
    assert "state adopt" in refusal.value.hint


def test_an_older_format_is_brought_up_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    oldest = {**json.loads(codec.encode(whole_document())), "format": -1}
    oldest["number"] = oldest.pop("serial")
    upgrades = {
        -1: lambda found: {**found, "format": 0, "serial": found["number"]},
        0: lambda found: {**found, "format": 1},
    }
    monkeypatch.setattr(codec, "UPGRADES", upgrades)
    assert codec.decode(json.dumps(oldest).encode(), "state/5.json") == whole_document()
