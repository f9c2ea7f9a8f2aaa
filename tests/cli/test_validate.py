"""`flowctl validate` and `flowctl schema`: findings as text, JSON and GitHub annotations; the effective spec."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from flowctl.cli import main
from flowctl.errors import ExitCode
from flowctl.spec.document import parse_document
from flowctl.spec.node import plain
from tests.cli.test_main import VALID

BROKEN = VALID.replace("mode: merge", "mode: merg").replace("pg:public", "pgg:public")
EXAMPLES = sorted((Path(__file__).parents[2] / "specs_examples").glob("*.yaml"))


@pytest.fixture(autouse=True)
def specs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("flow.yaml").write_text(VALID, encoding="utf-8")
    Path("broken.yaml").write_text(BROKEN, encoding="utf-8")


def validate(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = main.run(["validate", *arguments])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_text(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = validate(capsys, "flow.yaml", "broken.yaml")
    assert (code, out) == (ExitCode.SPEC, "")
    assert err == (
        "broken.yaml:8:18: error: there is no connection `pgg`. Did you mean `pg`?\n"
        "broken.yaml:8:53: error: `tables.orders.mode` cannot be 'merg'. Did you mean `merge`?\n"
        "2 errors\n"
    )


def test_each_spec_is_a_flow_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    Path("other.yaml").write_text(VALID, encoding="utf-8")
    assert validate(capsys, "flow.yaml", "other.yaml") == (
        ExitCode.OK,
        "flow.yaml: valid, 1 table\nother.yaml: valid, 1 table\n",
        "",
    )


def test_json(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = validate(capsys, "flow.yaml", "broken.yaml", "--format", "json")
    document = json.loads(out)
    assert (code, err) == (ExitCode.SPEC, "")
    assert document["format"] == 1
    assert [(spec["path"], spec["valid"]) for spec in document["specs"]] == [
        ("flow.yaml", True),
        ("broken.yaml", False),
    ]
    assert document["diagnostics"][0] == {
        "severity": "error",
        "code": "unknown-connection",
        "message": "there is no connection `pgg`",
        "hint": "Did you mean `pg`?",
        "place": "broken.yaml:8:18",
        "file": "broken.yaml",
        "line": 8,
        "column": 18,
    }


def test_github(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = validate(capsys, "broken.yaml", "--format", "github")
    assert code == ExitCode.SPEC
    assert out.splitlines()[0] == (
        "::error file=broken.yaml,line=8,col=18::there is no connection `pgg`. Did you mean `pg`?"
    )


def test_resolved_shows_where_each_value_comes_from(capsys: pytest.CaptureFixture[str]) -> None:
    Path("flow.yaml").write_text(VALID.replace("tables:", "defaults: {on_error: stop}\ntables:"), encoding="utf-8")
    _, out, _ = validate(capsys, "flow.yaml", "--resolved")
    assert "    on_error: stop  # flow.yaml:7 (defaults)\n" in out
    assert "      column: updated_at  # flow.yaml:9\n" in out
    root, diagnostics = parse_document(out, "resolved")
    assert root is not None
    assert diagnostics == []
    assert plain(root)["tables"]["orders"]["key"] == ["id"]


def test_resolved_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = validate(capsys, "flow.yaml", "--resolved", "--format", "json")
    resolved = json.loads(out)["specs"][0]["resolved"]
    assert {"path": "tables.orders.key", "value": ["id"], "origin": "flow.yaml:8"} in resolved


def test_a_secret_in_clear_is_never_printed(capsys: pytest.CaptureFixture[str]) -> None:
    Path("flow.yaml").write_text(VALID.replace("${secret:env:PW}", "hunter2"), encoding="utf-8")
    for extra in ([], ["--resolved"], ["--format", "json"], ["--resolved", "--format", "json"], ["--format", "github"]):
        code, out, err = validate(capsys, "flow.yaml", *extra)
        assert code == ExitCode.SPEC
        assert "hunter2" not in out + err


def editor_schema(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    assert main.run(["schema"]) == ExitCode.OK
    schema: dict[str, Any] = json.loads(capsys.readouterr().out)
    return schema


def test_the_editor_schema_is_a_json_schema(capsys: pytest.CaptureFixture[str]) -> None:
    Draft202012Validator.check_schema(editor_schema(capsys))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_editor_schema_accepts_the_examples(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root, _ = parse_document(path.read_text(encoding="utf-8"), path.name)
    assert root is not None
    errors = Draft202012Validator(editor_schema(capsys)).iter_errors(plain(root))
    assert [error.message for error in errors] == []


def test_the_editor_schema_takes_a_template_for_any_value(capsys: pytest.CaptureFixture[str]) -> None:
    text = VALID.replace("mode: merge", 'mode: "{{ vars.mode }}"').replace(
        "version: 1", "version: 1\nvars: {mode: merge}"
    )
    root, _ = parse_document(text + 'spark: {url: "{{ vars.spark }}"}\n', "flow.yaml")
    assert root is not None
    assert Draft202012Validator(editor_schema(capsys)).is_valid(plain(root))


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("type: delta", "type: detla"),
        ("type: delta, path", "type: delta, root"),
        ("key: [id]", "keys: [id]"),
        ("mode: merge", "mode: append"),
    ],
)
def test_the_editor_schema_sees_mistakes(right: str, wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    root, _ = parse_document(VALID.replace(right, wrong), "flow.yaml")
    assert root is not None
    assert not Draft202012Validator(editor_schema(capsys)).is_valid(plain(root))


def _properties(schema: Any, path: str) -> list[tuple[str, Any]]:
    """Every property at every depth, by its path in the schema."""
    match schema:
        case dict():
            own = [(f"{path}.{name}", child) for name, child in schema.get("properties", {}).items()]
            return own + [found for key, child in schema.items() for found in _properties(child, f"{path}/{key}")]
        case list():
            return [found for child in schema for found in _properties(child, path)]
        case _:
            return []


def test_every_property_is_described(capsys: pytest.CaptureFixture[str]) -> None:
    schema = editor_schema(capsys)
    described = [
        (path, child)
        for path, child in _properties(schema, "")
        if isinstance(child, dict)
        and child.keys() & {"type", "$ref", "enum", "anyOf"}
        and not path.startswith("/$defs/mode_")
        and "/if" not in path
    ]
    references = {name: definition.get("description") for name, definition in schema["$defs"].items()}
    bare = [
        path
        for path, child in described
        if "description" not in child and not references.get(str(child.get("$ref", "")).rpartition("/")[2])
    ]
    assert bare == []
    assert len(described) > 80
