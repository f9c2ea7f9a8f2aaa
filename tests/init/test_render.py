"""Decisions as text: `tests/golden/init/<name>.yaml`, and names that come back as they were.

`FLOWCTL_UPDATE_GOLDEN=1` writes the files anew; look at the difference before you commit it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from flowctl.diagnostics import Mark
from flowctl.init.decision import Decision
from flowctl.init.names import table_ids
from flowctl.init.place import Place
from flowctl.init.render import Outline, render
from flowctl.model.table_info import ObjectName
from flowctl.resolve.expand import expand
from flowctl.spec.load import load_spec
from flowctl.spec.spec import Connection, ObjectSource, TableSpec
from flowctl.spec.template import can_be_key
from tests.connectors.hostile import TEXTS

GOLDEN = Path(__file__).parents[1] / "golden" / "init"


def place(name: str, type: str, **options: str) -> Place:
    return Place(name, type, options, Connection(name, type, options, Mark("", 0)))


LAKE = place("lake", "delta", path="lake")
SHOP = place("shop", "postgres", url="postgresql://etl:${secret:env:SHOP_PASSWORD}@db/shop")
DATABASE = Outline("shop", "Written by `flowctl init`.", SHOP, LAKE, "dotted", "sail")
FILES = Outline("inbox", "Written by `flowctl init`.", place("inbox", "files", path="in"), LAKE, "path")


def named(*parts: str) -> ObjectName:
    return ObjectName(parts)


CASES: Mapping[str, tuple[Outline, Sequence[Decision]]] = {
    "database": (
        Outline(
            "shop", DATABASE.title, SHOP, LAKE, "dotted", "sail", (named("public", "totals"), named("public", "a b"))
        ),
        [
            Decision("genre", named("public", "genre"), "truncate", "primary key id; all (25 rows) are replaced"),
            Decision(
                "orders",
                named("public", "orders"),
                "merge",
                "primary key id; cursor updated_at: indexed, not null, newest 2.0 h old",
                ("id",),
                "updated_at",
            ),
            Decision(
                "order_lines",
                named("public", "Order Lines"),
                "merge",
                "primary key",
                ("Order_Id", "line"),
                "changed",
                reads_nulls=True,
                exclude=("ssn",),
                as_text=("born",),
                rename={"Order Id": "Order_Id"},
                decide=("left out, as this user may not read them: ssn", "word " * 40),
            ),
            Decision(
                "events",
                named("log", "events"),
                "append",
                "numbered",
                cursor="id",
                decide=("append reads no row again",),
            ),
            Decision("hidden", named("public", "hidden"), "truncate", "", left_out="this user may not read it"),
            Decision("odd", named("public", 'a"b\nc'), "truncate", "", left_out="it is\nodd"),
        ],
    ),
    "files": (
        FILES,
        [
            Decision("customers", named("customers.csv"), "truncate", "one file", format={"delimiter": ";"}),
            Decision(
                "clicks",
                named("clicks/**/*.jsonl"),
                "append",
                "many files",
                format={"schema": {f"column_{number}": "array<string>" for number in range(8)}},
            ),
            Decision("odd", named(" a [1].csv"), "truncate", "one file"),
        ],
    ),
    "nothing": (DATABASE, [Decision("t", named("public", "t"), "truncate", "", left_out="this user may not read it")]),
}


@pytest.mark.parametrize("name", CASES)
def test_goldens(name: str) -> None:
    outline, decisions = CASES[name]
    draft, file = render(outline, decisions), GOLDEN / f"{name}.yaml"
    if os.environ.get("FLOWCTL_UPDATE_GOLDEN"):
        file.write_text(draft.text)
    assert draft.text == file.read_text()
    lines = draft.text.splitlines()
    assert all(lines[at - 1].startswith(f"  {id}:") for id, at in draft.lines.items())


def test_hostile_names_come_back(tmp_path: Path) -> None:
    names = list(TEXTS.values())
    ids = table_ids([(name,) for name in names])
    decisions = [
        Decision(
            id,
            named("public", name),
            "merge",
            name,
            (name,),
            name,
            exclude=(f"{name} too",),
            as_text=(name,) if can_be_key(name) else (),
            rename={name: name} if can_be_key(name) else {},
            decide=(name,),
        )
        for id, name in zip(ids, names, strict=True)
    ]
    tables = loaded(DATABASE, decisions, tmp_path)
    assert [table.id for table in tables] == ids
    for table, name in zip(tables, names, strict=True):
        assert isinstance(table.source, ObjectSource)
        assert table.source.parts == ("public", name)
        assert table.key == (name,)
        assert table.cursor is not None
        assert table.cursor.column == name
        assert table.columns.exclude == (f"{name} too",)
        if can_be_key(name):
            assert (dict(table.columns.rename), dict(table.columns.types)) == ({name: name}, {name: "string"})


def test_hostile_paths_come_back(tmp_path: Path) -> None:
    names = [name for name in TEXTS.values() if "/" not in name]
    ids = table_ids([(name,) for name in names])
    decisions = [Decision(id, named(f"{name}.csv"), "truncate", "") for id, name in zip(ids, names, strict=True)]
    tables = loaded(FILES, decisions, tmp_path)
    assert [table.source.parts for table in tables if isinstance(table.source, ObjectSource)] == [
        (f"{name}.csv",) for name in names
    ]


def loaded(outline: Outline, decisions: Sequence[Decision], folder: Path) -> Sequence[TableSpec]:
    """Placeholders are filled in as a run does."""
    file = folder / "flow.yaml"
    file.write_text(render(outline, decisions).text, encoding="utf-8")
    return expand(load_spec([file], {}).tables, {}).tables
