"""A flow whose tables read one stream into several targets."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.e2e.flows import Flow
from tests.e2e.streams.sources import database_of
from tests.e2e.streams.targets import DeltaPlace, DwPlace, PlaceOfKind, SqlitePlace
from tests.e2e.target_place import TargetPlace
from tests.e2e.targets import DuckdbPlace, FolderPlace, IcebergPlace

PASSWORD = {"PG_PASSWORD": "etl-secret", "MY_PASSWORD": "my-etl-secret"}
#: Each kind of target with its connection and the tables of its pattern.
PATTERNS = {
    "dw": '  "dw_${table}": {from: "cdc:public.*", to: "DW", mode: merge}',
    "lake": '  "lake_${table}": {from: "cdc:public.*", to: "lake:${table}", mode: merge}',
    "lite": '  "lite_${table}": {from: "cdc:public.*", to: "lite:${table}", mode: merge}',
    "duck": '  "duck_${table}": {from: "cdc:public.*", to: "duck:${table}", mode: merge}',
    "ice": '  "ice_${table}": {from: "cdc:public.*", to: "ice:${table}", mode: merge}',
}
#: Targets that few tests write.
OTHERS: Mapping[str, type[TargetPlace]] = {"duck": DuckdbPlace, "ice": IcebergPlace, "files": FolderPlace}


def write_flow(
    folder: Path,
    url: str,
    targets: Sequence[str],
    tables: str = "",
    stream: str = "batch: {rows: 400}",
    spark: str = "sail",
) -> Flow:
    """``tables`` name those of the source as PostgreSQL does: ``cdc:public.orders``."""
    flow, database = Flow(folder, PASSWORD), database_of(url)
    dw, pattern = database.dw()
    patterns = "\n".join(PATTERNS[target].replace("DW", pattern) for target in targets)
    entries = named_there(url, f"{patterns}\n{tables}")
    others = [f"  {name}: {place(folder).connection}\n" for name, place in OTHERS.items() if f"{name}:" in entries]
    flow.write(f"""
version: 1
flow: shop
state: state
connections:
  source: {database.connection}
  dw: {dw}
  lake: {{type: delta, path: lake}}
  lite: {{type: sqlite, path: lite.db}}
{"".join(others)}spark: {{url: "{spark}"}}
streams:
  cdc: {{from: source, {stream}}}
tables:
{entries}
""")
    return flow


def named_there(url: str, tables: str) -> str:
    """Entries of tables with the names that they have in the source at ``url``."""
    return re.sub(r"\b(cdc|source):public\.", rf"\1:{database_of(url).prefix}", tables)


def place(flow: Flow, url: str, target: str) -> DwPlace | DeltaPlace | SqlitePlace | PlaceOfKind:
    match target:
        case "dw":
            return DwPlace(url)
        case "lake":
            return DeltaPlace(flow.folder / "lake")
        case "lite":
            return SqlitePlace(flow.folder / "lite.db")
        case other:
            return PlaceOfKind(OTHERS[other](flow.folder))


def flush(url: str) -> None:
    """Everything that has committed is what a plan calls the end of the log."""
    database_of(url).flush()
