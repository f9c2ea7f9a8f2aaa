"""Every spec that we show to people is valid."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowctl.spec.load import read_spec

EXAMPLES = sorted((Path(__file__).parents[2] / "specs_examples").glob("*.yaml"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_the_example_is_valid(path: Path) -> None:
    assert [found.render() for found in read_spec([path], {}).diagnostics] == []
