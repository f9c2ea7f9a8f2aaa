"""Broken specs and what is said about them: `tests/golden/spec/NN-name/{flow.yaml,expected.txt}`. A `given.json` has
what the command line and the environment add."""

from __future__ import annotations

import re

import pytest

from flowctl.errors import ExitCode, SpecError
from flowctl.resolve.resolve import resolve
from flowctl.spec.load import load_spec, read_spec
from tests.spec.broken import CASES, GOLDEN, enter


@pytest.mark.parametrize("case", CASES)
def test_every_error_is_reported_in_order(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reading = read_spec(["flow.yaml"], {}, enter(case, monkeypatch))
    found = reading.diagnostics
    if reading.spec is not None:
        with pytest.raises(SpecError) as raised:
            resolve(reading.spec, discovered={})
        found = raised.value.diagnostics
    assert [diagnostic.render() for diagnostic in found] == (GOLDEN / case / "expected.txt").read_text(
        encoding="utf-8"
    ).splitlines()


@pytest.mark.parametrize("case", CASES)
def test_every_error_names_the_line_and_what_to_do(case: str) -> None:
    for line in (GOLDEN / case / "expected.txt").read_text(encoding="utf-8").splitlines():
        place = r"[\w./]+\.yaml:\d+:\d+|--connection [\w-]+=…|FLOWCTL_CONN_[A-Z_]+"
        assert re.fullmatch(rf"({place}): error: .+[.?] \S.*", line)


@pytest.mark.parametrize("case", CASES)
def test_no_error_shows_a_secret(case: str) -> None:
    expected = (GOLDEN / case / "expected.txt").read_text(encoding="utf-8")
    assert "hunter2" not in expected
    assert "AKIAEXAMPLE" not in expected


def test_an_invalid_spec_is_an_error_with_all_findings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(GOLDEN / "17-missing-top-keys")
    with pytest.raises(SpecError) as raised:
        load_spec(["flow.yaml"], {})
    assert [found.code for found in raised.value.diagnostics] == ["missing-key"] * 3
    assert raised.value.exit_code == ExitCode.SPEC


def test_there_are_forty() -> None:
    assert len(CASES) >= 40
