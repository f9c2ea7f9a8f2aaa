"""What tests of whole flows know of a target, whatever its kind."""

from __future__ import annotations

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Self

from tests.e2e.flows import Row


@dataclass(frozen=True)
class TargetPlace(ABC):
    """The table ``name``. ``folder`` is the flow's, ``database`` the URL of an empty database (empty: it has none)."""

    folder: Path
    database: str = ""
    name: str = "orders"
    kind: ClassVar[str]
    #: The fixture of its database; empty for what is in the folder.
    fixture: ClassVar[str] = ""
    #: The variables that its connection refers to.
    env: ClassVar[Mapping[str, str]] = {}
    #: Where a first run is killed before there is a table.
    before_table: ClassVar[str] = "before_commit"

    @property
    @abstractmethod
    def options(self) -> dict[str, str]:
        """The connection as in a spec."""

    @abstractmethod
    def fetch(self, query: str) -> list[Row]:
        """The rows of a query of ``{table}``, in any order."""

    @abstractmethod
    def columns(self) -> list[str]: ...

    @property
    def connection(self) -> str:
        """The connection as YAML (flow style)."""
        return "{" + ", ".join(f"{name}: {_yaml(value)}" for name, value in self.options.items()) + "}"

    @property
    def object(self) -> str:
        """What stands after the colon of ``to``."""
        return self.name

    @property
    def reference(self) -> str:
        """The same, for any name."""
        return quoted(self.name)

    def named(self, name: str) -> Self:
        return replace(self, name=name)

    def apart(self) -> Self:
        """The same kind, where no other place of a flow is."""
        return self

    def rows(self, columns: Sequence[str]) -> list[Row]:
        """The table's rows, as text where systems show one value differently."""
        found = self.fetch(f"SELECT {', '.join(map(quoted, columns))} FROM {{table}}")
        return sorted((tuple(_plain(value) for value in row) for row in found), key=repr)

    def joined(self, text: str, column: str) -> str:
        """A text and an integer column after it, in SQL."""
        return f"concat('{text}', CAST({quoted(column)} AS varchar))"

    def everything(self) -> list[Row]:
        """What is not in the folder: the tables of a database."""
        return []

    def refuses_column(self, name: str) -> bool:
        """Whether no column can have this name."""
        return False

    def refuses_table(self, name: str) -> bool:
        """Whether no table can have this name."""
        return False

    def is_one_name(self, name: str, *, has_jvm: bool) -> bool:
        """Whether a spec can mean one table by this name, with an engine that ``has_jvm``."""
        return True


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _yaml(value: str) -> str:
    return value if re.fullmatch(r"[\w./-]+", value) else json.dumps(value)


def _plain(value: Any) -> object:
    if isinstance(value, bool):
        return int(value)
    return value if value is None or isinstance(value, int | float | str) else str(value)
