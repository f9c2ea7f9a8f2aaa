"""Two names of one place, as far as the spec tells: found by `validate`, without a driver."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from flowctl.errors import SpecError
from flowctl.resolve.resolve import resolve
from flowctl.spec.load import load_spec

HEAD = """
version: 1
flow: shop
state: state
connections:
  src: {type: sqlite, path: source.db}
  one: {type: sqlite, path: one.db}
  two: {type: sqlite, path: two.db}
  lake: {type: delta, path: lake/}
  pond: {type: delta, path: pond}
  s3: {type: delta, path: "s3://bucket/lake"}
  s3a: {type: delta, path: "s3a://bucket//lake/"}
  pg: {type: postgres, url: "postgresql://etl:${secret:env:PW}@db.example/shop"}
  ro: {type: postgres, host: DB.example, port: 5432, database: shop, user: other, password: "${secret:env:PW}"}
  bus: {type: kafka, brokers: "b:9092"}
  inbox: {type: files, path: lake}
tables:
"""


def findings(folder: Path, *tables: str) -> list[str]:
    spec = folder / "flow.yaml"
    spec.write_text(HEAD + "".join(f"  {table}\n" for table in tables))
    try:
        resolve(load_spec([str(spec)], {}), {})
    except SpecError as error:
        return [found.message for found in error.diagnostics if found.code == "same-target"]
    return []


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """``two.db`` is a symbolic link to ``one.db``, ``pond`` one to ``lake``; ``source.db`` is a file of its own."""
    (tmp_path / "one.db").write_bytes(b"")
    (tmp_path / "two.db").symlink_to("one.db")
    (tmp_path / "source.db").write_bytes(b"")
    (tmp_path / "lake").mkdir()
    (tmp_path / "pond").symlink_to("lake")
    return tmp_path


@pytest.mark.parametrize(
    "targets",
    [
        ("one:t", "two:T"),
        ("lake:t", "pond:t"),
        ("lake:a/t", "pond:a/t"),
        ("s3:t", "s3a:t"),
        ("pg:public.t", "ro:public.t"),
    ],
)
def test_one_table_under_two_names_is_found(folder: Path, targets: tuple[str, str]) -> None:
    made = [f"{name}: {{from: src:{name}, to: {to}, mode: truncate}}" for name, to in zip("ab", targets, strict=True)]
    (found,) = findings(folder, *made)
    assert found.startswith("`a` and `b` are both written to ")


def test_where_a_table_keeps_its_dead_letters_is_taken(folder: Path) -> None:
    a = "a: {from: bus:a, to: lake:t, mode: append, dead_letters: {}}"
    b = "b: {from: bus:b, to: lake:t__dead_letters, mode: append}"
    (found,) = findings(folder, a, b)
    assert found.startswith("lake:t__dead_letters is where `a` (")
    assert found.endswith("keeps its dead letters")


@pytest.mark.parametrize(
    ("source", "to"),
    [
        ("inbox:**/*.csv", "{connection: inbox, path: a, format: {type: csv}}"),
        ("inbox:*/*.csv*", "{connection: inbox, path: a, format: {type: csv, compression: gzip}}"),
        ("inbox:**", "inbox:a/b"),
        ("inbox:**/*.parquet", "lake:a"),
    ],
)
def test_a_pattern_that_matches_what_its_table_writes_is_found(folder: Path, source: str, to: str) -> None:
    (found,) = findings(folder, f'a: {{from: "{source}", to: {to}, mode: append}}')
    assert found == f"`a` reads {source} and writes to the same place"


@pytest.mark.parametrize(
    ("source", "to"),
    [
        ("inbox:**/*.csv", "inbox:a"),
        ("inbox:*.csv", "{connection: inbox, path: a, format: {type: csv}}"),
        ("inbox:b/**/*.csv", "{connection: inbox, path: a, format: {type: csv}}"),
    ],
)
def test_other_files_below_a_pattern_are_none(folder: Path, source: str, to: str) -> None:
    assert findings(folder, f'a: {{from: "{source}", to: {to}, mode: append}}') == []


@pytest.mark.parametrize(
    ("table", "matched", "excluded"),
    [
        ("'${table}.clean': {from: 'bus:in.*', to: bus}", "bus:in.x.clean, where it writes", "*.clean"),
        ("'${table}_copy': {from: 'one:t*', to: two}", "two:tx_copy, where it writes", "*_copy"),
        ("'${table}': {from: 'pg:public.*', to: 'ro:public.${table}_2'}", "ro:public.x_2, where it writes", "*_2"),
        ("'${table}': {from: 'lake:*', to: 'pond:${table}_copy'}", "pond:x_copy, where it writes", "*_copy"),
        (
            "'${table}': {from: 'bus:in.*', to: lake, dead_letters: {to: bus:in.dead}}",
            "bus:in.dead, where it writes for dead letters",
            "in.dead",
        ),
    ],
)
def test_a_pattern_that_finds_what_it_writes(folder: Path, table: str, matched: str, excluded: str) -> None:
    mode = "mode: append" if "bus:" in table else "mode: truncate"
    (found,) = findings(folder, f"{table[:-1]}, {mode}}}")
    assert matched in found
    assert findings(folder, f"{table[:-1]}, {mode}, exclude: ['{excluded}']}}") == []


@pytest.mark.parametrize(
    "table",
    [
        "'${table}_copy': {from: 'one:t?', to: two, mode: truncate}",
        "'copy_${table}': {from: 'one:t*', to: two, mode: truncate}",
        "'${table}': {from: 'one:t*', to: 'src:${table}_copy', mode: truncate}",
        "'${table}': {from: 'pg:public.*', to: 'pg:other.${table}', mode: truncate}",
        "'${table}': {from: 'bus:in.*', to: lake, mode: append, dead_letters: {to: bus:dead}}",
        "'${table}': {from: 'inbox:*.csv', to: inbox, mode: append}",
    ],
)
def test_a_pattern_that_does_not_find_what_it_writes(folder: Path, table: str) -> None:
    assert findings(folder, table) == []


@pytest.mark.parametrize(
    ("outer", "inner"), [("inbox:x", "inbox:x/y"), ("lake:x", "pond:x/y/z"), ("lake:x", "inbox:x/y")]
)
def test_a_table_in_the_folder_of_another_is_found(folder: Path, outer: str, inner: str) -> None:
    made = [f"{name}: {{from: src:{name}, to: {to}, mode: truncate}}" for name, to in (("b", inner), ("a", outer))]
    (found,) = findings(folder, *made)
    assert found == f"{inner} is in the folder of {outer}, where `a` is written"


def test_a_hard_link_is_the_same_file(folder: Path) -> None:
    (folder / "two.db").unlink()
    os.link(folder / "one.db", folder / "two.db")
    assert findings(
        folder, "a: {from: src:a, to: one:t, mode: truncate}", "b: {from: src:b, to: two:t, mode: truncate}"
    )


@pytest.mark.parametrize("suffix", ["__observed", "__quarantine"])
@pytest.mark.parametrize("to", ["one:t", "two:t"])
def test_a_sidecar_belongs_to_its_table(folder: Path, suffix: str, to: str) -> None:
    (found,) = findings(
        folder,
        f"a: {{from: src:a, to: 'one:t{suffix}', mode: truncate}}",
        f"b: {{from: src:b, to: '{to}', mode: truncate}}",
    )
    assert "is where `b` (" in found and "keeps its" in found


@pytest.mark.parametrize(
    "table",
    [
        "a: {from: one:t, to: two:t, mode: truncate}",
        "a: {from: pg:public.t, to: ro:public.t, mode: truncate}",
        "a: {from: 'inbox:t/*.parquet', to: pond:t, mode: truncate}",
    ],
)
def test_no_table_reads_what_it_writes(folder: Path, table: str) -> None:
    (found,) = findings(folder, table)
    assert "writes to the same place" in found


def test_names_of_flowctl_s_own_are_taken(folder: Path) -> None:
    (found,) = findings(folder, "a: {from: src:a, to: one:_flowctl_commits, mode: truncate}")
    assert "flowctl's own" in found


def test_different_places_are_left_alone(folder: Path) -> None:
    (folder / "two.db").unlink()
    tables = [
        "a: {from: src:a, to: one:t, mode: truncate}",
        "b: {from: src:b, to: two:t, mode: truncate}",
        "c: {from: src:c, to: lake:t, mode: truncate}",
        "d: {from: src:t, to: pg:public.t, mode: truncate}",
        "e: {from: src:e, to: pg:other.t, mode: truncate}",
        "f: {from: src:f, to: ro:t, mode: truncate}",
        "g: {from: src:g, to: one:x__observed, mode: truncate}",
        "h: {from: 'inbox:in/*.parquet', to: lake:h, mode: truncate}",
    ]
    assert findings(folder, *tables) == []
