"""Structs from files in a database that has none: PostgreSQL keeps them as `jsonb`, in every run."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from tests.e2e.flows import Flow

SPEC = """
version: 1
flow: f
state: state
spark: {{url: sail}}
connections:
  inbox: {{type: files, path: inbox}}
  db: {{type: postgres, url: "{url}"}}
tables:
  merged: {{from: "inbox:*.jsonl", to: db:public.merged, mode: merge, key: [id], format: {{schema: {columns}}}}}
  appended: {{from: "inbox:*.jsonl", to: db:public.appended, mode: append, format: {{schema: {columns}}}}}
"""
COLUMNS = '{id: bigint, s: "struct<a:bigint,b:string>"}'


@pytest.mark.full
def test_structs_in_postgres_from_run_to_run(tmp_path: Path, postgres_database: str) -> None:
    flow, inbox = Flow(tmp_path, {"PG_PASSWORD": "etl-secret"}), tmp_path / "inbox"
    hidden = postgres_database.replace("etl-secret", "${secret:env:PG_PASSWORD}")
    flow.write(SPEC.format(url=hidden, columns=COLUMNS))
    inbox.mkdir()
    for number, (id, text) in enumerate(((1, "x"), (2, "y"), (2, "z"))):
        (inbox / f"{number}.jsonl").write_text(f'{{"id": {id}, "s": {{"a": {id}, "b": "{text}"}}}}\n')
        flow.apply()
    assert flow.actions() == {"merged": "none", "appended": "none"}
    with psycopg.connect(postgres_database) as connection:
        found = {
            name: connection.execute(f"SELECT id, s FROM {name} ORDER BY id, s->>'b'".encode()).fetchall()
            for name in ("merged", "appended")
        }
    x, y, z = (1, {"a": 1, "b": "x"}), (2, {"a": 2, "b": "y"}), (2, {"a": 2, "b": "z"})
    assert found == {"merged": [x, z], "appended": [x, y, z]}
