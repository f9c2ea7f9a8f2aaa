"""Files to a Spec: every value where it belongs."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowctl.diagnostics import Mark
from flowctl.errors import SpecError
from flowctl.expect.between import Between
from flowctl.expect.freshness import Freshness
from flowctl.expect.matches import Matches
from flowctl.expect.not_null import NotNull
from flowctl.expect.one_of import OneOf
from flowctl.expect.rows import Rows
from flowctl.expect.sql import Sql
from flowctl.spec.load import load_spec, read_spec
from flowctl.spec.secret_text import SecretRef, SecretText
from flowctl.spec.spec import (
    ColumnRules,
    Cursor,
    DetectFlag,
    DetectMissingKeys,
    Guard,
    Layout,
    ObjectSource,
    QuerySource,
    ReadHints,
    SchemaPolicies,
    SparkSettings,
    Spec,
    SqlSource,
    StateLocation,
    TableSpec,
    TargetRef,
)

FLOW = """\
version: 1
flow: shop
vars: {env: dev, splits: 4, unset: null}
state: {url: "s3://lake/{{ vars.env }}", unsafe: true}
connections:
  pg: {type: postgres, url: "postgresql://etl:${secret:env:PW}@db/shop"}
  app: {type: sqlite, path: app.db}
  inbox: {type: files, path: inbox}
  lake: {type: delta, path: "lake/{{ vars.env }}"}
storage:
  s3://lake: {region: eu-west-1, access_key: "${secret:env:AK}", secret_key: "${secret:env:SK}"}
spark: {url: "spark://h:7077", conf: {spark.executor.memory: 4g, spark.speculation: false, spark.cores.max: 2}}
defaults:
  to: lake
  dedupe: fail
  on_error: stop
  on_schema_change: {dropped_column: fail}
"""


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)

    def load_text(tables: str, **variables: str) -> Spec:
        Path("flow.yaml").write_text(f"{FLOW}tables:\n{tables}", encoding="utf-8")
        return load_spec(["flow.yaml"], {"unset": "x", **variables})

    return load_text


def test_the_flow(load) -> None:
    spec = load("  {}\n")
    assert (spec.flow, spec.path) == ("shop", "flow.yaml")
    assert spec.state == StateLocation("s3://lake/dev", unsafe=True)
    assert spec.spark == SparkSettings(
        "spark://h:7077",
        {"spark.executor.memory": "4g", "spark.speculation": "false", "spark.cores.max": "2"},
    )
    assert spec.connections["lake"].options == {"path": "lake/dev"}
    assert spec.connections["pg"].options == {
        "url": SecretText(("postgresql://etl:", SecretRef("env", "PW"), "@db/shop"))
    }
    assert spec.connections["pg"].mark == Mark("flow.yaml", 6, 3)
    assert spec.storage["s3://lake"]["secret_key"] == SecretText((SecretRef("env", "SK"),))
    assert spec.variables == {"env": "dev", "splits": "4", "unset": "x"}


def test_a_merge_table_with_everything(load) -> None:
    (table,) = load("""\
  orders:
    from: pg:public.orders
    to: lake:sales/orders
    mode: merge
    key: [id, line]
    cursor: {column: updated_at, start: 2020-01-01, lag: 15m, delay: 500ms, nulls: skip}
    dedupe: latest
    deletes: {detect: missing_keys, every: 24h, action: hard}
    compare: {ignore: [last_seen]}
    columns:
      exclude: [ssn]
      rename: {o_dt: ordered_at}
      types: {amount: "decimal(18,2)"}
      mask: {email: sha256}
      add: {m: "date_trunc('month', ordered_at)"}
    where: "country = 'NL'"
    read: {splits: "{{ vars.splits }}", split_by: id, fetch_size: 10}
    layout: {partition_by: [m], deletion_vectors: false}
    expect:
      - {column: id, not_null: true}
      - {column: amount, between: [0, 9.5], on_fail: quarantine}
      - {column: status, in: [a, b]}
      - {column: code, matches: "[A-Z]+"}
      - {sql: amount >= 0}
      - {rows: {min: 1}, on_fail: warn}
      - {freshness: {column: updated_at, within: 2h}}
    guard: {allow_empty: false, max_deleted: 5%, max_quarantined: 0.5%}
""").tables
    marks = table.marks
    line = {name: Mark("flow.yaml", 38 + at, 9) for at, name in enumerate("abcdefg")}
    assert table == TableSpec(
        id="orders",
        source=ObjectSource("pg", ("public", "orders")),
        target=TargetRef("lake", ("sales/orders",)),
        mode="merge",
        mark=Mark("flow.yaml", 19, 3),
        key=("id", "line"),
        cursor=Cursor("updated_at", "2020-01-01", 900.0, 0.5, "skip"),
        dedupe="latest",
        deletes=DetectMissingKeys(86400.0, "hard"),
        compare_ignore=("last_seen",),
        columns=ColumnRules(
            exclude=("ssn",),
            rename={"o_dt": "ordered_at"},
            types={"amount": "decimal(18,2)"},
            mask={"email": "sha256"},
            add={"m": "date_trunc('month', ordered_at)"},
        ),
        where="country = 'NL'",
        read=ReadHints(4, "id", 10),
        layout=Layout(partition_by=("m",), deletion_vectors=False, statistics=("id", "line", "updated_at")),
        expect=(
            NotNull(column="id", mark=line["a"]),
            Between(column="amount", low=0, high=9.5, on_fail="quarantine", mark=line["b"]),
            OneOf(column="status", values=("a", "b"), mark=line["c"]),
            Matches(column="code", pattern="[A-Z]+", mark=line["d"]),
            Sql(condition="amount >= 0", mark=line["e"]),
            Rows(least=1, on_fail="warn", mark=line["f"]),
            Freshness(column="updated_at", within=7200.0, mark=line["g"]),
        ),
        guard=Guard(allow_empty=False, max_deleted=0.05, max_quarantined=0.005),
        on_schema_change=SchemaPolicies(dropped_column="fail"),
        on_error="stop",
        marks=marks,
    )
    assert table.mark_of("cursor.lag") == Mark("flow.yaml", 24, 53)
    assert table.mark_of("guard.max_shrink") == Mark("flow.yaml", 45, 5)
    assert table.mark_of("on_error") == Mark("flow.yaml", 16, 3)


@pytest.mark.parametrize(
    ("written", "source"),
    [
        ('from: pg:public."My.Table"', ObjectSource("pg", ("public", "My.Table"))),
        ("from: {connection: app, table: orders}", ObjectSource("app", ("orders",))),
        ("from: inbox:invoices/*.csv", ObjectSource("inbox", ("invoices/*.csv",), is_glob=True)),
        ("from: {connection: inbox, path: a.csv}", ObjectSource("inbox", ("a.csv",))),
        ("from: {connection: pg, query: SELECT 1 AS a}", QuerySource("pg", "SELECT 1 AS a")),
        ("from: {sql: \"SELECT * FROM {{ ref('t') }}\"}", SqlSource("SELECT * FROM {{ref:t}}", ("t",))),
    ],
)
def test_sources(load, written: str, source: object) -> None:
    tables = load(f"  t: {{from: app:t, mode: truncate}}\n  x:\n    {written}\n    mode: truncate\n").tables
    assert tables[1].source == source


def test_targets(load) -> None:
    tables = load("""\
  a: {from: app:a, mode: truncate}
  b: {from: app:b, to: pg:public.b, mode: truncate}
  c: {from: app:c, to: {connection: app, table: '"c.d"'}, mode: truncate}
  "d_${table}": {from: "pg:public.*", mode: truncate}
""").tables
    assert [table.target for table in tables] == [
        TargetRef("lake", ("${id}",)),
        TargetRef("pg", ("public", "b")),
        TargetRef("app", ("c.d",)),
        TargetRef("lake", ("${id}",)),
    ]


def test_other_modes(load) -> None:
    versions, flagged = load("""\
  versions: {from: pg:public.v, mode: scd2, key: [id], scd2: {valid_from: now}}
  flagged: {from: pg:public.f, mode: merge, key: [id], deletes: {detect: flag, column: gone}}
""").tables
    assert (versions.valid_from, versions.dedupe) == ("now", "fail")
    assert flagged.deletes == DetectFlag("gone", (True,), "soft")


def test_an_inherited_key_that_the_mode_cannot_use_is_dropped(load) -> None:
    (table,) = load("  a: {from: app:a, mode: append, cursor: none}\n").tables
    assert "dedupe" not in table.marks


def test_tables_keep_the_order_of_the_file_then_of_the_includes(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    for name, table, more in (
        ("2.yaml", "b", ""),
        ("1.yaml", "d", "connections: {more: {type: sqlite, path: m.db}}\n"),
    ):
        text = f"tables: {{{table}: {{from: more:{table}, to: lake, mode: truncate}}}}\n{more}"
        (tmp_path / "parts" / name).write_text(text, encoding="utf-8")
    flow = tmp_path / "flow.yaml"
    flow.write_text(
        "version: 1\nflow: f\nstate: s\ninclude: [parts/*.yaml]\nconnections: {lake: {type: delta, path: lake}}\n"
        "tables:\n  z: {from: more:z, to: lake, mode: truncate}\n  a: {from: more:a, to: lake, mode: truncate}\n",
        encoding="utf-8",
    )
    spec = load_spec([flow], {})
    assert [table.id for table in spec.tables] == ["z", "a", "d", "b"]
    assert spec.tables[2].mark.file == str(tmp_path / "parts" / "1.yaml")


def test_variables_from_the_command_line_go_over_the_environment_and_the_file(
    load, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load("  {}\n").state.url == "s3://lake/dev"
    monkeypatch.setenv("FLOWCTL_VAR_ENV", "test")
    assert load("  {}\n").state.url == "s3://lake/test"
    assert load("  {}\n", env="prod").state.url == "s3://lake/prod"


def test_a_given_variable_takes_the_type_of_the_files_own(load) -> None:
    tables = '  a: {from: pg:a, mode: truncate, read: {splits: "{{ vars.splits }}"}}\n'
    assert load(tables, splits="8").tables[0].read.splits == 8


def test_a_variable_that_is_not_declared_is_an_error(load) -> None:
    with pytest.raises(SpecError, match="--var evn: there is no such variable") as raised:
        load("  {}\n", evn="prod")
    assert raised.value.hint == "Did you mean `env`?"


def test_the_digest_knows_values_and_not_places(load) -> None:
    one = load("  a: {from: app:a, mode: truncate, where: x}\n").digest
    moved = load("  # a comment\n  a:\n    mode: truncate\n    from: app:a\n    where: 'x'\n").digest
    assert one == moved
    assert len(one) == 64
    assert one != load("  a: {from: app:a, mode: truncate, where: y}\n").digest
    assert one != load("  a: {from: app:a, mode: truncate, where: x}\n", env="prod").digest


def test_the_digest_does_not_see_secret_values(load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PW", "one")
    before = load("  {}\n").digest
    monkeypatch.setenv("PW", "two")
    assert load("  {}\n").digest == before


def test_a_file_that_is_not_there() -> None:
    (found,) = read_spec(["nowhere/flow.yaml"], {}).diagnostics
    assert found.render() == (
        "nowhere/flow.yaml:1:1: error: cannot read nowhere/flow.yaml: No such file or directory. Check the path"
    )


@pytest.mark.parametrize("state", ['"$${x}"', '{url: "$${x}"}'])
def test_the_place_of_the_state_can_have_the_characters_of_a_reference(tmp_path: Path, state: str) -> None:
    spec = f"version: 1\nflow: shop\nstate: {state}\ntables: {{}}\n"
    (tmp_path / "flow.yaml").write_text(spec, encoding="utf-8")
    assert load_spec([tmp_path / "flow.yaml"], {}).state == StateLocation("${x}")
