"""Files as the plan sees them: real folders, no engine. Which files, which columns, and why there are none."""

from __future__ import annotations

import bz2
import gzip
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from flowctl.connectors.source import WatermarkRequest
from flowctl.model.step import Step
from flowctl.model.table_info import ObjectName, TableInfo
from flowctl.plan.document import action_of
from flowctl.plan.planning import make_plan
from flowctl.resolve.resolve import PlanOptions
from flowctl.spec.load import load_spec
from tests.connectors.reading import files, opened

SPEC = """
version: 1
flow: shop
state: state
connections:
  inbox: {type: files, path: inbox}
  db: {type: sqlite, path: shop.db}
  out: {type: sqlite, path: out.db}
tables:
  orders: {from: "%s", to: out, mode: truncate}
"""


@pytest.fixture
def inbox(tmp_path: Path) -> Path:
    (tmp_path / "inbox").mkdir()
    return tmp_path / "inbox"


def planned(folder: Path, source: str, more: str = "") -> Step:
    text = (SPEC % source).replace("mode: truncate", f"mode: truncate{more}")
    (folder / "flow.yaml").write_text(text, encoding="utf-8")
    (step,) = make_plan(load_spec([folder / "flow.yaml"], {}), PlanOptions()).plan.steps
    return step


def names(step: Step) -> list[str]:
    return [column.name for column in step.columns.source]


def test_every_new_file_has_a_say_in_the_columns(inbox: Path) -> None:
    """And not only the last hundred: a run looks at all that it reads, and stops at a column it was not told of."""
    for number in range(150):
        (inbox / f"{number:03}.csv").write_text("id\n1\n")
    (inbox / "000.csv").write_text("id,remark\n1,x\n")
    assert names(planned(inbox.parent, "inbox:*.csv")) == ["id", "remark"]


def test_a_column_that_files_may_lack_gets_its_type_by_the_hint(inbox: Path) -> None:
    (inbox / "a.csv").write_text("id,v\n1,2026-01-01\n")
    (inbox / "b.csv").write_text("id\n2\n")
    stopped = planned(inbox.parent, "inbox:*.csv", ", format: {schema: {id: bigint, v: date}}")
    assert stopped.reason.endswith("b.csv has no column v, which format.schema names")
    assert "give its type under `columns.types`, not `format.schema`" in stopped.hint
    keys = ", format: {schema: {id: bigint}}, columns: {types: {v: date}}"
    made = planned(inbox.parent, "inbox:*.csv", keys)
    assert action_of(made) == "create" and [str(column.type) for column in made.columns.target] == [
        "int64",
        "date32[day]",
    ]


def test_files_that_were_read_are_not_all_looked_into(inbox: Path) -> None:
    for number in range(150):
        (inbox / f"{number:03}.csv").write_text("id\n1\n" if number else "")  # nothing names the first one's columns
    with opened("files", str(inbox.parent), path="inbox") as connector:
        source: Any = connector.source
        watermark = source.high_watermarks(
            {"t": WatermarkRequest(files("*.csv"), TableInfo(ObjectName(("*.csv",)), (), ""))}
        )["t"]
        (inbox / "001.csv").write_text("id,late\n1,x\n")
        info, _ = source.describe_files(files("*.csv"), {stamp.path: stamp for stamp in watermark.position.files})
    assert sorted(column.name for column in info.columns) == ["id", "late"]


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("_landing/*.csv", ["_landing/a.csv"]),
        ("_land*/*.csv", ["_landing/a.csv"]),
        (".staged/x/*.csv", [".staged/x/b.csv"]),
        ("**/*.csv", ["c.csv"]),
        ("*/*.csv", []),
        ("_landing/**", ["_landing/a.csv"]),
        ("_unfinished.csv", []),
    ],
)
def test_a_hidden_folder_is_read_where_it_is_named(inbox: Path, pattern: str, found: list[str]) -> None:
    hidden = ("_landing/_tmp/x.csv", "_landing/.part.csv", "_unfinished.csv")
    for path in ("_landing/a.csv", ".staged/x/b.csv", "c.csv", *hidden):
        (inbox / path).parent.mkdir(parents=True, exist_ok=True)
        (inbox / path).write_text("id\n1\n")
    with opened("files", str(inbox.parent), path="inbox") as connector:
        assert connector.source is not None
        assert [object.parts[0] for object in connector.source.discover((pattern,))] == found


def test_links_that_lead_round_in_a_circle_end(inbox: Path) -> None:
    (inbox / "sub").mkdir()
    (inbox / "sub" / "a.csv").write_text("id\n1\n")
    (inbox / "sub" / "round").symlink_to(inbox, target_is_directory=True)
    (inbox / "itself.csv").symlink_to("itself.csv")
    (inbox / "nowhere.csv").symlink_to("gone.csv")
    with opened("files", str(inbox.parent), path="inbox") as connector:
        assert connector.source is not None
        found = [object.parts[0] for object in connector.source.discover(("**/*.csv",))]
    assert "sub/a.csv" in found and "itself.csv" not in found and len(found) < 5


@pytest.mark.parametrize(
    ("source", "reason", "hint"),
    [
        ("inbox:2026/*.csv", "{folder}/inbox/2026/*.csv: the folder {folder}/inbox/2026 does not exist", "`2025`"),
        ("inbox:orders/*.csv", "the folder {folder}/inbox/orders does not exist", "Correct `from`"),
        ("inbox:2025/*.jsonl", "no file matches {folder}/inbox/2025/*.jsonl", "{folder}/inbox/2025 has a.csv"),
        ("inbox:_x.csv", "matches only names that begin with _ or .", "Rename"),
        ("db:ordres", "{folder}/shop.db has no table ordres", "`Orders`"),
        ("db:nothing", "{folder}/shop.db has no table nothing", "Correct `from`"),
    ],
)
def test_what_is_not_there_is_named_with_its_place_and_what_comes_near(
    inbox: Path, source: str, reason: str, hint: str
) -> None:
    database = sqlite3.connect(inbox.parent / "shop.db")
    database.executescript("CREATE TABLE Orders (id INTEGER)")
    database.close()
    (inbox / "2025").mkdir()
    (inbox / "2025" / "a.csv").write_text("id\n1\n")
    (inbox / "_x.csv").write_text("id\n1\n")
    step = planned(inbox.parent, source)
    is_glob = "*" in source
    assert (action_of(step), step.by) == ("stop", "policy" if is_glob else "error")
    assert step.reason.startswith(f"{source} {'matches nothing' if is_glob else 'does not exist'}: ")
    assert reason.format(folder=inbox.parent) in step.reason
    assert hint.format(folder=inbox.parent) in step.hint


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("bad.csv", "id,naïve\n1,2\n".encode("latin-1"), "bad.csv is not UTF-8 text"),
        ("bad.csv", "id,name\n1,2\n".encode("utf-16"), "bad.csv is not UTF-8 text"),
        ("bad.csv", b'"id' + b"x" * 200_000 + b'"\n1\n', "bad.csv: its header cannot be read"),
        ("bad.csv.gz", b"id,name\n1,2\n", "bad.csv.gz is not compressed as its name indicates, or is incomplete"),
        ("bad.csv.gz", gzip.compress(b"id,name\n" * 99)[:12], "bad.csv.gz is not compressed as its name indicates"),
        ("bad.csv.bz2", bz2.compress(b"id,name\n" * 99)[:20], "bad.csv.bz2 is not compressed as its name indicates"),
        ("bad.csv.zst", b"id,name\n1,2\n", "bad.csv.zst is not compressed as its name indicates"),
        ("bad.parquet", b"PAR1 no more", "bad.parquet cannot be read as parquet"),
        ("bad.parquet", b"", "bad.parquet cannot be read as parquet"),
        ("bad.orc", b"ORC no more", "bad.orc cannot be read as orc"),
    ],
    ids=range(10),
)
def test_a_broken_file_stops_its_table_alone(inbox: Path, name: str, content: bytes, reason: str) -> None:
    (inbox / name).write_bytes(content)
    (inbox / "good.csv").write_text("id\n1\n")
    text = SPEC % "inbox:good.csv" + f'  bad: {{from: "inbox:{name}", to: out, mode: truncate}}\n'
    (inbox.parent / "flow.yaml").write_text(text, encoding="utf-8")
    steps = make_plan(load_spec([inbox.parent / "flow.yaml"], {}), PlanOptions()).plan.steps
    (bad,) = (step for step in steps if step.id == "bad")
    (good,) = (step for step in steps if step.id == "orders")
    assert (action_of(bad), bad.by, action_of(good)) == ("stop", "error", "create")
    assert reason in bad.reason and bad.hint


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read_is_named(inbox: Path) -> None:
    (inbox / "bad.csv").write_text("id\n1\n")
    (inbox / "bad.csv").chmod(0)
    step = planned(inbox.parent, "inbox:*.csv")
    assert (step.by, step.reason) == ("error", "bad.csv cannot be read: permission denied")
