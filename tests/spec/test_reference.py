"""The reference page says what the schemas say."""

from __future__ import annotations

from pathlib import Path

from flowctl.spec.reference import reference

PAGE = Path(__file__).parents[2] / "docs" / "spec-reference.md"


def test_the_page_is_up_to_date() -> None:
    """After a change of a schema: ``python -m flowctl.spec.reference > docs/spec-reference.md``."""
    assert PAGE.read_text(encoding="utf-8") == reference()
