"""Commands that hints print, as a shell takes them: what a table holds may be a word with spaces and quotes."""

from __future__ import annotations

import json
import shlex

from flowctl.model.value import TypedValue


def state_set(spec_path: str, table_id: str, *options: str) -> str:
    """``flowctl state set``. ``spec_path`` is :attr:`flowctl.spec.spec.Spec.argument`, which is quoted already."""
    return f"`flowctl state set {spec_path} {shlex.join((table_id, *options))}`"


def position_option(at: TypedValue) -> tuple[str, str]:
    """``--position`` for a cursor's value; as JSON where its text would mean something else."""
    text = at.text()
    is_plain = text not in ("beginning", "full") and not text.lstrip().startswith("{")
    return "--position", text if is_plain else json.dumps({"kind": "cursor", **at.to_json()}, ensure_ascii=False)
