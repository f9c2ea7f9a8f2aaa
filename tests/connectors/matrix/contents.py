"""What a source of the matrix holds, and what each mode must have made of it in a target."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Literal

Kind = Literal["bigint", "int", "text", "decimal", "date", "timestamp", "boolean", "double", "binary"]
Columns = Mapping[str, Kind]
Row = dict[str, Any]

#: ``code`` and ``id`` say the same: either is a key. ``small`` gets wider, ``at`` is the cursor.
ORDERS: Columns = {
    "id": "bigint",
    "code": "text",
    "small": "int",
    "amount": "decimal",
    "note": "text",
    "day": "date",
    "at": "timestamp",
}
TYPES: Columns = {**ORDERS, "done": "boolean", "ratio": "double", "raw": "binary"}
WIDE: Columns = {"id": "bigint", **{f"c{at}": "text" if at % 2 else "bigint" for at in range(300)}}
MANY: Columns = {"id": "bigint", "twice": "bigint", "note": "text"}
#: A column that comes later.
EXTRA = "extra"
_BEGIN = dt.datetime(2026, 1, 1)


def order(id: int, clock: int, note: str | None = "first") -> Row:
    """A row of ``ORDERS`` as it is from ``clock`` on."""
    return {
        "id": id,
        "code": f"k{id}",
        "small": id * 7 - 3,
        "amount": None if id % 5 == 0 else Decimal(id) + Decimal("0.1234"),
        "note": note,
        "day": _BEGIN.date() + dt.timedelta(days=id),
        "at": _BEGIN + dt.timedelta(seconds=clock),
    }


def typed() -> list[Row]:
    """The ends of what all sources and targets can hold (SQLite: 15 digits), and nulls."""
    lowest = {
        **order(1, 0, ""),
        "small": -(2**31),
        "amount": Decimal("-99999999999.9999"),
        "day": dt.date(1900, 1, 1),
        "done": False,
        "ratio": -1.5e300,
        "raw": b"",
    }
    highest = {
        **order(2, 0, 'it\'s 😀, "q"\n\tnext; é'),
        "small": 2**31 - 1,
        "amount": Decimal("99999999999.9999"),
        "day": dt.date(9999, 12, 31),
        "at": dt.datetime(2025, 12, 31, 23, 59, 59, 999999),
        "done": True,
        "ratio": 0.1 + 0.2,
        "raw": bytes(range(256)),
    }
    nothing = {**dict.fromkeys(TYPES), "id": -(2**63), "code": "k", "at": _BEGIN}
    return [lowest, highest, nothing]


def wide() -> list[Row]:
    columns = [name for name in WIDE if name != "id"]
    values = [[f"{name} of {id}" if WIDE[name] == "text" else id * 1000 + at for at, name in enumerate(columns)]
              for id in (1, 2, 3)]  # fmt: skip
    return [{"id": id, **dict(zip(columns, found, strict=True))} for id, found in zip((1, 2, 3), values, strict=True)]


@dataclass
class Content:
    """One table over time. ``written`` has each row as often as it was written, ``ended`` among them."""

    columns: dict[str, Kind]
    live: dict[int, Row] = field(default_factory=dict)
    versions: list[Row] = field(default_factory=list)
    written: list[Row] = field(default_factory=list)
    newest: dict[int, Row] = field(default_factory=dict)
    #: Each row as it was when it last was live: what a soft deletion keeps.
    last: dict[int, Row] = field(default_factory=dict)

    def put(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self.live[row["id"]] = self.newest[row["id"]] = self.last[row["id"]] = row
            self.versions.append(row)
            self.written.append(row)

    def end(self, rows: Iterable[Row], *, keeps_all: bool) -> None:
        """Each is the row as it was, at the time of its end: another row where all are kept."""
        for row in rows:
            del self.live[row["id"]]
            self.written.append(row)
            if keeps_all:
                self.newest[row["id"]] = row


def normal(value: Any, kind: Kind) -> Any:
    """A value in one form: systems show some types as another (SQLite has no dates)."""
    match kind:
        case _ if value is None:
            return None
        case "bigint" | "int" | "boolean":
            return int(value)
        case "decimal":
            return Decimal(str(value)).normalize()
        case "date":
            return str(value)
        case "timestamp":
            return dt.datetime.fromisoformat(str(value)).replace(tzinfo=None)
        case "double":
            return float(value)
        case _:
            return bytes(value) if kind == "binary" else value


def as_rows(rows: Iterable[Sequence[Any]], columns: Columns) -> list[tuple[Any, ...]]:
    """In one order, each value in one form."""
    kinds = list(columns.values())
    made = (tuple(normal(value, kind) for value, kind in zip(row, kinds, strict=True)) for row in rows)
    return sorted(made, key=repr)


def of_rows(rows: Iterable[Row], columns: Columns) -> list[tuple[Any, ...]]:
    """The same of rows by name; one that lacks a column has null in it."""
    return as_rows(([row.get(name) for name in columns] for row in rows), columns)
