"""What `flowctl init` takes for tables among the files of a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import write_deltalake
from pyiceberg.catalog.memory import InMemoryCatalog

from flowctl.connectors.files.survey import survey_files


def test_files_of_other_tables_are_left_out(inbox: Path, source: Any) -> None:
    """Which of their files count, only the logs of these tables say."""
    rows = pa.table({"id": [1, 2]})
    write_deltalake(str(inbox / "delta"), rows)
    catalog = InMemoryCatalog("c", warehouse=str(inbox))
    catalog.create_namespace("shop")
    catalog.create_table("shop.orders", schema=rows.schema).append(rows)
    for path in ("written/0000000001-a-b-00000.parquet", "written/_flowctl/commits/00000000000000000001.json"):
        (inbox / path).parent.mkdir(parents=True, exist_ok=True)
        (inbox / path).touch()
    for name in ("delta.parquet", "data/orders.parquet"):
        (inbox / name).parent.mkdir(exist_ok=True)
        pq.write_table(rows, inbox / name)
    (inbox / "data" / "orders.metadata.json").write_text('{"of": "nobody"}')
    assert list(inbox.rglob("*.avro")) and list(inbox.rglob("*.metadata.json"))
    found = survey_files(source, lambda _: True)
    assert sorted(str(table.object) for table in found.tables) == ["data/orders.parquet", "delta.parquet"]
