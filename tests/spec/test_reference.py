"""The reference page and the README say what the schemas say."""

from __future__ import annotations

from pathlib import Path

from flowctl.spec.overview import overview
from flowctl.spec.reference import reference

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "spec-reference.md"


def test_the_page_is_up_to_date() -> None:
    """After a change of a schema: ``python -m flowctl.spec.reference > docs/spec-reference.md``."""
    assert PAGE.read_text(encoding="utf-8") == reference()


def test_the_table_of_connections_is_up_to_date() -> None:
    """After a change of a schema: replace the README's table with what ``python -m flowctl.spec.overview`` prints."""
    assert overview() in (ROOT / "README.md").read_text(encoding="utf-8")
