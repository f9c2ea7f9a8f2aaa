"""Specs of strangers: what would take all memory or time is refused by name, before it is done.

Each in a process of its own with little memory and few seconds: that it ends in time is the point.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAD = "version: 1\nflow: shop\nstate: state\nconnections:\n  app: {type: sqlite, path: app.db}\n"
TABLE = '  t: {{from: "app:t", to: "app:copy", mode: truncate, where: {}}}\n'
ALIASES = "vars: &v0 {a: 1, b: 1, c: 1, d: 1}\n" + "".join(
    f"x{level}: &v{level} [{', '.join([f'*v{level - 1}'] * 9)}]\n" for level in range(1, 12)
)


def _expression(text: str) -> str:
    return HEAD + f'vars: {{a: "{"x" * 5000}"}}\ntables:\n' + TABLE.format(f'"{{{{ {text} }}}}"')


SPECS = {
    "aliases": (ALIASES, "more than 200,000 values"),
    "flow depth": ("a: " + "[" * 150_000, "nested more than 50 levels deep"),
    "map depth": ("a: " + "{a: " * 100_000, "nested more than 50 levels deep"),
    "dash depth": ("- " * 300_000 + "x", "nested more than 50 levels deep"),
    "little depth": ("a: " + "[" * 200 + "]" * 200, "nested more than 50 levels deep"),
    "values": ("a: [" + "1," * 1_000_000 + "]", "more than 200,000 values"),
    "size": ("# " + "x" * 5_000_000, "more than 4,194,304 characters"),
    "value": (HEAD + "tables:\n" + TABLE.format("'" + "x" * 300_000 + "'"), "a value has more than"),
    "key": (HEAD + f"tables:\n  ? {'k' * 1000}\n  : {{}}\n", "a key has more than 300"),
    "table id": (
        HEAD + f"tables:\n  {'k' * 256}: {{from: app:t, to: app, mode: truncate}}\n",
        ":7:3: error: `" + "k" * 256 + "` is not a valid table id. Use up to 255 letters",
    ),
    "longest table id": (HEAD + f"tables:\n  {'k' * 255}: {{from: app:t, to: app, mode: truncate}}\n", "valid"),
    "number": (HEAD + "tables: " + "9" * 50_000, "`tables` is"),
    "hexadecimal": (HEAD + "tables: 0x" + "f" * 50_000, "`tables` is"),
    "unlike items": (
        HEAD
        + "tables:\n  t: {from: app:t, to: app, mode: merge, key: ["
        + ", ".join(f"{{k{number}: 1}}" for number in range(20_000))
        + "]}\n",
        "a list has more than 1,000 entries",
    ),
    "inherited": (
        HEAD
        + "defaults: {columns: {rename: {"
        + ", ".join(f"a{n}: b{n}" for n in range(20_000))
        + "}}}\ntables:\n"
        + "".join(f"  t{n}: {{from: app:t, to: app, mode: truncate}}\n" for n in range(1_000)),
        "the tables inherit",
    ),
    "chain": (
        HEAD
        + "tables:\n"
        + "".join(
            f"  t{n}: {{from: {{sql: \"SELECT * FROM {{{{ ref('t{n + 1}') }}}}\"}}, to: app, mode: truncate}}\n"
            for n in range(2_000)
        )
        + "  t2000: {from: app:t, to: app, mode: truncate}\n",
        "tables read one another in a chain",
    ),
    "type": (
        HEAD
        + "tables:\n  t: {from: app:t, to: app, mode: truncate, columns: {types: {a: '"
        + "array<" * 20_000
        + "'}}}\n",
        "",
    ),
    "open braces": (HEAD + "tables:\n" + TABLE.format("'" + "{{ " * 80_000 + "'"), "error"),
    "open placeholders": (HEAD + "tables:\n" + TABLE.format("'" + "${" * 120_000 + "'"), "valid"),
    "open secrets": (HEAD + "tables:\n" + TABLE.format("'" + "${secret:" * 28_000 + "'"), "valid"),
    "unknown names": (
        HEAD + "tables:\n" + "".join(f"  t{n}: {{from: 'c{n}:t', to: app, mode: truncate}}\n" for n in range(2_000)),
        "there is no connection",
    ),
    "repeated variable": (
        HEAD + f'vars: {{a: "{"x" * 5000}"}}\ntables:\n' + TABLE.format("'" + "{{ vars.a }}" * 20_000 + "'"),
        "its result would be too large",
    ),
    **{
        text: (_expression(text), "the expression fails: its result would be too large")
        for text in (
            "'{:999999999}'.format(1)",
            "'{:{}}'.format(1, 999999999)",
            "'a' * 10**9",
            "10**9 * 'a'",
            "[1] * 10**9",
            "10 ** 10 ** 1000",
            "2 ** 99999",
            "(10 ** 1000) ** 1000",
            "'%999999999d' % 1",
            "'%*d' % (999999999, 1)",
            "'a' | center(999999999)",
            "'%999999999d' | format(1)",
            "'a'.center(999999999)",
            "'a'.zfill(10**9)",
            "'a'.ljust(999999999)",
            "vars.a.replace('x', vars.a)",
            "vars.a | replace('x', vars.a)",
            "vars.a.replace('', vars.a)",
            "vars.a.join(vars.a)",
            "vars.a | join(vars.a)",
            "1.5 | round(999999999)",
            "(vars.a ~ vars.a ~ vars.a) * 9",
        )
    },
    **{
        text: (_expression(text), "error")
        for text in (
            "range(10**9)",
            "lipsum(n=999)",
            "'a' | indent(999999999)",
            "'a' | batch(999999999, 'b') | list",
            "[1] | tojson(indent=999999999)",
            "'a\\\\tb'.expandtabs(999999999)",
            "(1).to_bytes(999999999, 'big')",
            "''.__class__.__mro__",
            "[1] | slice(999999999) | list",
            "'a'.format_map({}).__class__",
            "(" * 5_000 + "1" + ")" * 5_000,
            "['a'] | map('center', 999999999) | list",
            "9" * 9_000,
        )
    },
}
#: Reads the spec as `validate` does.
PROBE = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
resource.setrlimit(resource.RLIMIT_CPU, (20, 20))
from flowctl.cli.main import run
for path in sys.argv[1:]:
    print("==", path, flush=True)
    print("->", run(["validate", path]), flush=True)
"""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str]]:
    """What is said of each spec, and with which code; all by one process, within its limits."""
    folder = tmp_path_factory.mktemp("specs")
    paths = {name: folder / f"{number}.yaml" for number, name in enumerate(SPECS)}
    for name, path in paths.items():
        path.write_text(SPECS[name][0])
    done = subprocess.run(
        [sys.executable, "-c", PROBE, *map(str, paths.values())],
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=120,
    )  # fmt: skip
    parts = [part.partition("\n") for part in done.stdout.split("== ")[1:]]
    said = {path: (text.rpartition("-> ")[0], text.rpartition("-> ")[2].strip()) for path, _, text in parts}
    return {name: said.get(str(path), ("", f"ended with {done.returncode}")) for name, path in paths.items()}


@pytest.mark.parametrize("name", SPECS)
def test_it_is_refused_at_once(name: str, answers: dict[str, tuple[str, str]]) -> None:
    text, code = answers[name]
    assert code == ("0" if SPECS[name][1] == "valid" else "3"), text[-2000:] + code
    assert SPECS[name][1] in text and "defect" not in text, text[:2000]
    assert len(text) < 4_000_000


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("vars.n * 2 + 1", "15"), ("'a' * 3", "aaa"), ("'%05d' % vars.n", "00007"), ("'{:>4}'.format(vars.n)", "   7"),
        ("vars.env | upper", "PROD"), ("vars.env.replace('p', 'P')", "Prod"), ("['a', 'b'] | join('-')", "a-b"),
        ("'x' if vars.n > 3 else 'y'", "x"), ("vars.env ~ '_' ~ vars.n", "prod_7"), ("'a,b'.split(',')[1]", "b"),
        ("2 ** 10", "1024"), ("vars.get('env')", "prod"), ("'%s-%s' | format(vars.env, vars.n)", "prod-7"),
        ("1.26 | round(1)", "1.3"), ("vars.env | default('x')", "prod"),
    ],
)  # fmt: skip
def test_what_specs_say_still_works(text: str, value: str, tmp_path: Path) -> None:
    from flowctl.spec.load import read_spec

    table = TABLE.format(f'"={{{{ {text} }}}}"')
    (tmp_path / "flow.yaml").write_text(HEAD + "vars: {n: 7, env: prod}\ntables:\n" + table)
    reading = read_spec([tmp_path / "flow.yaml"], {})
    assert reading.spec is not None, reading.diagnostics
    assert reading.spec.tables[0].where == f"={value}"


def test_an_include_does_not_search_the_disk(tmp_path: Path) -> None:
    from flowctl.spec.load import read_spec

    for pattern in ("../../**/*.yaml", "/**/*.yaml", "/etc/*"):
        (tmp_path / "flow.yaml").write_text(f"include: ['{pattern}']\n{HEAD}tables: {{}}\n")
        (found,) = [one for one in read_spec([tmp_path / "flow.yaml"], {}).diagnostics if one.code == "include-glob"]
        assert found.mark is not None and found.mark.line == 1
