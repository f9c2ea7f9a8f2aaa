"""How consumers of a merged topic find the row of a message: by the bytes of its key, in the partition that these
choose. Equal keys of all commits must have equal bytes and be in one partition, or a row that was updated or deleted
stays as it was."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flowctl.spec.topic_layout import MessageFormat, TopicLayout


@dataclass(frozen=True)
class KeyForm:
    """``format`` is that of the keys, ``schema`` the id that they begin with (None: they have no registered schema).
    ``partitions``: how many partitions, the first ones, keys are distributed over."""

    format: MessageFormat
    schema: int | None
    partitions: int

    def document(self) -> dict[str, Any]:
        return {"format": self.format, "schema": self.schema, "partitions": self.partitions}

    def refuse_layout(self, layout: TopicLayout) -> tuple[str, str] | None:
        """Why a commit with ``layout`` cannot follow, and what to do; None if it can."""
        then, now = _described(self.format, self.schema is not None), _described(layout.format, layout.registry)
        if then == now:
            return None
        return (
            f"its keys are encoded with `{then}`, and `to.format` says `{now}`: rows would be there under two keys",
            f"Set `format: {{{then}}}` in `to`, or write to a new topic",
        )

    def refuse_schema(self, id: int) -> tuple[str, str] | None:
        """The same for a commit whose keys begin with ``id``."""
        if self.schema is None or id == self.schema:
            return None
        return (
            f"its keys begin with the schema id {self.schema}, and the registry has their schema under {id}:"
            " rows would be there under two keys",
            "Use the registry that it was written with, or write to a new topic",
        )


def key_form_from(document: Mapping[str, Any] | None) -> KeyForm | None:
    """None: written before this was recorded, or not merged."""
    return KeyForm(document["format"], document["schema"], document["partitions"]) if document else None


def _described(format: MessageFormat, is_registered: bool) -> str:
    return f"type: {format}" + (", registry: true" if format == "json" and is_registered else "")
