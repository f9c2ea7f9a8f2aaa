"""Sources that are put back from a copy and written again: a version's number may then mean another one."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import NoSuchTableError

from tests.e2e.flows import Flow, sqlite_rows

pytestmark = pytest.mark.server
#: Writes a row into the table below the folder `src`.
Write = Callable[[Path, int], None]
CONNECTIONS = {
    "delta": "{{type: delta, path: src}}",
    "iceberg": '{{type: iceberg, catalog: jdbc, uri: "sqlite:///{folder}/src/cat.db", warehouse: "file://{folder}/src"}}',
}
TABLES = """
  merged: {from: "src:t", to: out, mode: merge, key: [id], deletes: {detect: missing_keys, action: hard},
    guard: {max_deleted: 100%}}
  appended: {from: "src:t", to: out, mode: append}
  replaced: {from: "src:t", to: out, mode: truncate}
  history: {from: "src:t", to: out, mode: scd2, key: [id], deletes: {detect: missing_keys},
    guard: {max_deleted: 100%}, scd2: {valid_from: now}}
"""


def write_delta(folder: Path, id: int) -> None:
    write_deltalake(str(folder / "src" / "t"), _rows(id), mode="append")


def write_iceberg(folder: Path, id: int) -> None:
    (folder / "src").mkdir(exist_ok=True)
    uri, warehouse = f"sqlite:///{folder}/src/cat.db", f"file://{folder}/src"
    catalog = SqlCatalog("flowctl", uri=uri, warehouse=warehouse)
    catalog.create_namespace_if_not_exists("default")
    try:
        table = catalog.load_table("default.t")
    except NoSuchTableError:
        table = catalog.create_table("default.t", _rows(id).schema)
    table.append(_rows(id))
    catalog.close()


def _rows(id: int) -> pa.Table:
    return pa.table({"id": pa.array([id], pa.int64()), "note": [f"row {id}"]})


@pytest.mark.full
@pytest.mark.parametrize("sees_lower", [False, True], ids=["at the same number", "below it in between"])
@pytest.mark.parametrize(("kind", "write"), [("delta", write_delta), ("iceberg", write_iceberg)])
def test_a_table_put_back_and_written_again(kind: str, write: Write, sees_lower: bool, tmp_path: Path) -> None:
    flow, copy = Flow(tmp_path), tmp_path / "copy"
    flow.write(
        "version: 1\nflow: f\nstate: state\nspark: {url: sail}\nconnections:\n"
        f"  src: {CONNECTIONS[kind].format(folder=tmp_path)}\n  out: {{type: sqlite, path: out.db}}\ntables:{TABLES}"
    )
    for id in (1, 2):
        write(tmp_path, id)
    shutil.copytree(tmp_path / "src", copy)
    for id in (3, 4):
        write(tmp_path, id)
    flow.apply()
    assert ids(flow, "appended") == [1, 2, 3, 4]
    shutil.rmtree(tmp_path / "src")
    shutil.copytree(copy, tmp_path / "src")
    if sees_lower:
        flow.apply(expect=6)
    for id in (5, 6):
        write(tmp_path, id)
    must_follow(flow, [1, 2, 5, 6], ["appended"])
    write(tmp_path, 7)
    must_follow(flow, [1, 2, 5, 6, 7], ["appended"])
    flow.run("apply", "flow.yaml", "--full-refresh", "appended", expect=0)
    write(tmp_path, 8)
    flow.apply()
    assert ids(flow, "appended") == [1, 2, 5, 6, 7, 8]
    assert set(flow.actions().values()) == {"none"}


def must_follow(flow: Flow, wanted: list[int], stopped: list[str]) -> None:
    """All tables but those that append have the source's rows; these say why they stop, and keep theirs."""
    said = flow.apply(expect=6).words
    assert "is another one now" in said or "went back from" in said
    assert [ids(flow, name) for name in ("merged", "replaced")] == [wanted, wanted]
    assert ids(flow, "history", "WHERE is_current") == wanted
    assert [ids(flow, name) for name in stopped] == [[1, 2, 3, 4]]


def ids(flow: Flow, table: str, where: str = "") -> list[int]:
    return [id for (id,) in sqlite_rows(flow.folder / "out.db", f"SELECT id FROM {table} {where} ORDER BY id")]
