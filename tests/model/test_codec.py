"""Frozen values as JSON and back: what every document has in common. The documents themselves have goldens."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest

from flowctl.model import types
from flowctl.model.codec import from_json, in_json, to_json
from flowctl.model.position import FilesPosition, FileStamp, NoPosition, Position
from flowctl.model.table_info import Column
from flowctl.model.types import DataType
from flowctl.model.value import TypedValue


@dataclass(frozen=True)
class Part:
    name: str
    kind: DataType | None = field(metadata=in_json(name="type"))


@dataclass(frozen=True)
class Whole:
    parts: tuple[Part, ...]
    by_name: Mapping[str, Part]
    how: Literal["a", "b"] = "a"
    words: tuple[str, ...] = ()
    at: Position | None = None
    bound: TypedValue | None = None
    files: tuple[FileStamp, ...] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    since: int = field(default=1, metadata=in_json("since"))
    told: str = field(default="", metadata=in_json("not_default"))
    never: int = field(default=0, metadata=in_json("never"))


PART = Part("id", types.Decimal(12, 2))
WHOLE = Whole((PART, Part("note", None)), {"id": PART})


def test_a_value_is_what_it_was_after_a_trip_through_json() -> None:
    full = Whole(
        (PART,),
        {"id": PART},
        "b",
        ("x", "y"),
        FilesPosition((FileStamp("a.csv", 12, "t"),)),
        TypedValue(types.INT64, 7),
        (FileStamp("b.csv", 3, "u"),),
        {"any": {"thing": [1, None]}},
        2,
        "told",
    )
    for value in (WHOLE, full):
        assert from_json(Whole, to_json(value)) == value


def test_fields_stand_in_their_order_under_their_names_unless_they_say_otherwise() -> None:
    document = to_json(WHOLE)
    assert list(document) == ["parts", "by_name", "how", "words", "at", "bound", "files", "extra", "since"]
    assert document["parts"] == [{"name": "id", "type": "decimal128(12, 2)"}, {"name": "note", "type": None}]
    assert to_json(Whole((), {}, told="x", never=3))["told"] == "x"


def test_older_documents_lack_what_was_added_and_later_ones_have_more() -> None:
    document = to_json(WHOLE)
    del document["since"]
    assert from_json(Whole, {**document, "later": 1, "never": 5}) == WHOLE


def test_what_must_be_there_is_missed() -> None:
    document = to_json(WHOLE)
    del document["words"]
    with pytest.raises(KeyError):
        from_json(Whole, document)
    with pytest.raises(ValueError, match="unknown type"):
        from_json(Column, {"name": "a", "type": "what", "nullable": True})


def test_a_class_without_a_form_is_refused_when_it_is_met() -> None:
    @dataclass(frozen=True)
    class Odd:
        pairs: tuple[Part, Position]

    with pytest.raises(TypeError, match="no form in JSON"):
        from_json(Odd, {"pairs": []})


def test_the_keys_of_a_part_may_stand_among_those_of_its_owner() -> None:
    @dataclass(frozen=True)
    class Owner:
        part: Part = field(metadata=in_json("inline"))
        own: int = 1

    assert to_json(Owner(PART)) == {"own": 1, "name": "id", "type": "decimal128(12, 2)"}
    assert from_json(Owner, to_json(Owner(PART, 2))) == Owner(PART, 2)


def test_positions_have_the_form_that_targets_have_recorded() -> None:
    assert from_json(tuple[Column, ...], []) == ()
    assert to_json(NoPosition()) == {"kind": "none"}
