"""The same flow into each kind of target: its connection in the spec, and its rows by value."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from deltalake import DeltaTable

from flowctl.spec.schema import target_modes
from tests.e2e.flows import Row, delta_rows, duckdb_rows, files_rows, newest_manifest, postgres_rows, sqlite_rows

Kind = Literal["delta", "sqlite", "duckdb", "postgres", "files"]
KINDS: tuple[Kind, ...] = ("delta", "sqlite", "duckdb", "postgres", "files")


def kinds_with(*modes: str) -> tuple[Kind, ...]:
    """Those that can take all of ``modes``."""
    return tuple(kind for kind in KINDS if set(modes) <= set(target_modes(kind)))


@dataclass(frozen=True)
class TargetPlace:
    """``connection`` is the spec's YAML (flow style), ``object`` what stands after the colon of ``to``."""

    kind: Kind
    connection: str
    object: str
    location: str

    def rows(self, columns: Sequence[str]) -> list[Row]:
        """The table's rows, as text where the systems show one value differently."""
        names = ", ".join(f'"{name}"' for name in columns)
        match self.kind:
            case "delta":
                found = delta_rows(Path(self.location) / self.object, columns)
            case "sqlite":
                found = sqlite_rows(Path(self.location), f'SELECT {names} FROM "{self.object}"')
            case "duckdb":
                found = duckdb_rows(Path(self.location), f'SELECT {names} FROM "{self.object}"')
            case "files":
                found = files_rows(Path(self.location) / self.object, columns)
            case "postgres":
                found = postgres_rows(self.location, f"SELECT {names} FROM {self.object}")
        return sorted((tuple(_plain(value) for value in row) for row in found), key=repr)

    def columns(self) -> list[str]:
        match self.kind:
            case "delta":
                return [field.name for field in DeltaTable(str(Path(self.location) / self.object)).schema().fields]
            case "sqlite":
                query = f"SELECT name FROM pragma_table_info('{self.object}')"
                return [str(name) for (name,) in sqlite_rows(Path(self.location), query)]
            case "duckdb":
                query = f"SELECT column_name FROM duckdb_columns() WHERE table_name = '{self.object}'"
                return [str(name) for (name,) in duckdb_rows(Path(self.location), query)]
            case "files":
                return [str(column["name"]) for column in newest_manifest(Path(self.location) / self.object)["columns"]]
            case "postgres":
                query = f"SELECT attname FROM pg_attribute WHERE attrelid = '{self.object}'::regclass AND attnum > 0"
                found = postgres_rows(self.location, f"{query} AND NOT attisdropped")
                return [str(name) for (name,) in found]


def place(kind: Kind, folder: Path, postgres_url: str) -> TargetPlace:
    match kind:
        case "delta":
            return TargetPlace(kind, "{type: delta, path: lake}", "orders", str(folder / "lake"))
        case "sqlite":
            return TargetPlace(kind, "{type: sqlite, path: target.db}", "orders", str(folder / "target.db"))
        case "duckdb":
            connection = "{type: duckdb, path: target.duckdb}"
            return TargetPlace(kind, connection, "orders", str(folder / "target.duckdb"))
        case "files":
            return TargetPlace(kind, "{type: files, path: files}", "orders", str(folder / "files"))
        case "postgres":
            secret = postgres_url.replace("etl-secret", "${secret:env:PG_PASSWORD}")
            return TargetPlace(kind, f'{{type: postgres, url: "{secret}"}}', "public.orders", postgres_url)


def _plain(value: object) -> object:
    if isinstance(value, bool):
        return int(value)
    return value if value is None or isinstance(value, int | float | str) else str(value)
