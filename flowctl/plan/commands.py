"""Commands in hints, quoted for a shell: values from a table may contain spaces and quotes."""

from __future__ import annotations

import json
import shlex

from flowctl.model.value import TypedValue, to_json

#: An argument that the reader fills in.
BLANK = "…"


def state_command(verb: str, spec_path: str, table_id: str, *options: str) -> str:
    """``flowctl state <verb>``. ``spec_path`` is :attr:`flowctl.spec.spec.Spec.argument`, which is already quoted."""
    words = (option if option == BLANK else shlex.quote(option) for option in (table_id, *options))
    return f"`flowctl state {verb} {spec_path} {' '.join(words)}`"


def restore_command(spec_path: str, table_id: str, seq: int) -> str:
    return f"`flowctl restore {spec_path} {shlex.quote(table_id)} --to {seq}`"


def position_option(at: TypedValue) -> tuple[str, str]:
    """``--position`` for a cursor value; as JSON if its text would be read as something else."""
    text = at.text()
    is_plain = text not in ("beginning", "full") and not text.lstrip().startswith("{")
    return "--position", text if is_plain else json.dumps({"kind": "cursor", **to_json(at)}, ensure_ascii=False)
