"""What of a draft is refused, by table."""

from __future__ import annotations

from flowctl.diagnostics import Diagnostic, Mark
from flowctl.errors import SpecError
from flowctl.init.check import _by_line
from flowctl.init.render import Draft
from flowctl.resolve import sail


def test_what_a_table_has_from_the_defaults_is_refused_for_the_table() -> None:
    refused = Diagnostic("b: to is not supported on Sail", sail.HINT, Mark("flow.yaml", 3), "not-on-sail")
    found = _by_line(SpecError([refused]), Draft("", {"a": 6, "b": 7}))
    assert list(found) == ["b"] and found["b"].by_sail
