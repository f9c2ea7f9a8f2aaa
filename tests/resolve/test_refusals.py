"""What no run of a spec could do is refused by `validate` and by `plan`, in the same words, with the same exit code."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowctl.cli import main
from flowctl.connectors import registry
from flowctl.errors import ExitCode
from flowctl.spec import schema
from tests.spec.broken import CASES, enter

HEAD = """
version: 1
flow: shop
state: state
connections:
  src: {type: sqlite, path: source.db}
  one: {type: sqlite, path: one.db}
  two: {type: sqlite, path: ./one.db}
  lake: {type: delta, path: lake}
  pg: {type: postgres, host: nowhere.invalid, database: shop, user: etl, password: "${secret:env:PW}"}
  inbox: {type: files, path: inbox}
tables:
"""
SAIL = "spark: {url: sail}\n"

#: What is wrong: the lines below ``tables:`` (and, after them, other keys), with the place and the words.
REFUSED: dict[str, tuple[str, str]] = {
    "one target under two names": (
        "  a: {from: src:a, to: one:t, mode: truncate}\n  b: {from: src:b, to: two:t, mode: truncate}\n",
        "13:20: error: `a` and `b` are both written to two:t",
    ),
    "a target of another case": (
        "  a: {from: src:a, to: one:t, mode: truncate}\n  b: {from: src:b, to: one:T, mode: truncate}\n",
        "13:20: error: `a` and `b` are both written to one:T",
    ),
    "a sidecar's place": (
        "  a: {from: src:a, to: one:t, mode: scd2, key: [id], scd2: {valid_from: now}}\n"
        "  b: {from: src:b, to: one:t__observed, mode: truncate}\n",
        "13:20: error: one:t__observed is where `a` (flow.yaml:12:3) keeps its observations",
    ),
    "its own source": (
        "  a: {from: one:t, to: two:t, mode: truncate}\n",
        "12:20: error: `a` reads one:t and writes to the same place",
    ),
    "a table of flowctl's own": (
        "  a: {from: src:a, to: one:_flowctl_commits, mode: truncate}\n",
        "12:20: error: one:_flowctl_commits: names that begin with _flowctl are flowctl's own",
    ),
    "a name that the target would cut": (
        f"  a: {{from: src:a, to: pg:{'n' * 64}, mode: truncate}}\n",
        f'12:20: error: pg:{"n" * 64}: "{"n" * 64}" is not a valid name there: PostgreSQL truncates names to 63 bytes',
    ),
    "a sidecar's name that the target would cut": (
        f"  a: {{from: src:a, to: pg:{'n' * 60}, mode: scd2, key: [id], scd2: {{valid_from: now}}}}\n",
        f"12:20: error: pg:{'n' * 60}: its observations would be kept in {'n' * 60}__observed: PostgreSQL truncates",
    ),
    "files of an unknown format": (
        "  a: {from: 'inbox:*.txt', to: lake, mode: append}\n",
        "12:7: error: a: files of *.txt have no format that this version reads",
    ),
    "files of another compression": (
        "  a: {from: 'inbox:*.csv.zip', to: lake, mode: append, format: {type: csv}}\n",
        "12:7: error: a: *.csv.zip is compressed as .zip; text files are read as they are, or as .gz, .bz2, .zst",
    ),
    "a type that JSON does not give": (
        "  a: {from: 'inbox:*.jsonl', to: lake, mode: append, format: {schema: {x: 'array<struct<a: bigint>>'}}}\n",
        "12:7: error: a: column x of `format.schema` is array<struct<`a`: bigint>>, which no text is read as."
        " Set x to string, which keeps its text; with spark.url local[*], `columns.add` converts it, with from_json",
    ),
    "a type that CSV does not give": (
        "  a: {from: 'inbox:*.csv', to: lake, mode: append, format: {schema: {x: binary}}}\n",
        "12:7: error: a: column x of `format.schema` is binary, which no text is read as."
        " Set x to string, which keeps its text; with spark.url local[*], `columns.add` converts it, with unbase64",
    ),
    "a type that a path does not give": (
        "  a: {from: 'inbox:**/*.parquet', to: lake, mode: append, format: {partitions: {x: array<int>}}}\n",
        "12:7: error: a: column x of `format.partitions` is array<int>, which no text is read as. Set x to string",
    ),
    "an event time that is left out": (
        "  a: {from: src:a, to: lake, mode: scd2, key: [id], scd2: {valid_from: at}, columns: {exclude: [at]}}\n",
        "12:72: error: event time `at` is left out by `columns`. Copy it too, or choose another event time",
    ),
    "a column of flowctl's own": (
        "  a: {from: src:a, to: lake, mode: scd2, key: [id], scd2: {valid_from: t}, columns: {add: {row_hash: '1'}}}\n",
        '12:86: error: a: columns.add creates a column "row_hash", a name reserved for flowctl',
    ),
    "a column of flowctl's own in a pattern": (
        '  "a_${table}": {from: "src:*", to: lake, mode: truncate, columns: {add: {_flowctl_op: "1"}}}\n',
        '12:69: error: a_${table}: columns.add creates a column "_flowctl_op", a name reserved for flowctl',
    ),
    "a table that no engine keeps its promise about": (
        f"  a: {{from: src:a, to: lake, mode: truncate, columns: {{add: {{twice: n * 2}}}}}}\n{SAIL}",
        "12:56: error: a: columns.add is not supported on Sail: integer overflow is not detected there",
    ),
    "a pattern that no engine keeps its promise about": (
        f'  "a_${{table}}": {{from: "src:*", to: lake, mode: truncate, layout: {{cluster_by: [id]}}}}\n{SAIL}',
        "12:68: error: a_${table}: layout.cluster_by is not supported on Sail: it cannot create clustered tables",
    ),
}


def printed(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, list[str]]:
    """The exit code and the errors; `validate` counts them in a last line."""
    code = main.run([*arguments])
    said = capsys.readouterr()
    assert said.out == ""
    return code, [line for line in said.err.splitlines() if "error: " in line]


@pytest.mark.parametrize("case", REFUSED)
def test_both_refuse_before_anything_is_asked(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    tables, words = REFUSED[case]
    Path("flow.yaml").write_text(HEAD.lstrip() + tables, encoding="utf-8")
    code, errors = printed(capsys, "validate", "flow.yaml")
    assert (code, len(errors)) == (ExitCode.SPEC, 1)
    assert errors[0].startswith(f"flow.yaml:{words}")
    assert printed(capsys, "plan", "flow.yaml") == (code, errors)


@pytest.mark.parametrize("case", CASES)
def test_both_say_the_same_of_a_broken_spec(
    case: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options = [word for pair in enter(case, monkeypatch).items() for word in ("--connection", "=".join(pair))]
    code, errors = printed(capsys, "validate", "flow.yaml", *options)
    assert (code, errors) == (ExitCode.SPEC, Path("expected.txt").read_text(encoding="utf-8").splitlines())
    assert printed(capsys, "plan", "flow.yaml", *options) == (code, errors)


@pytest.mark.parametrize("type", schema.connector_types())
def test_what_a_schema_allows_the_connector_can_do(type: str) -> None:
    """Roles, cursors and queries stand in the schema alone as far as specs are concerned, modes too."""
    can = registry.capabilities(type)
    assert (schema.role(type, "source") is None) == (can.source is None)
    assert (schema.role(type, "target") is None) == (can.target is None)
    if can.source is not None:
        assert ("cursor" in schema.forbidden(f"source:{type}")) == (can.source.position != "cursor")
