"""What a MySQL or MariaDB server answers about itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

QUERY = (
    "SELECT @@version, @@version_comment, @@local_infile, @@max_allowed_packet, @@lower_case_table_names, DATABASE(),"
    " @@global.time_zone, @@system_time_zone, CURRENT_USER()"
)


@dataclass(frozen=True)
class Facts:
    """``id`` distinguishes the server from others: its UUID; a MariaDB has none, and is known by host and port."""

    version: str
    is_mariadb: bool
    takes_files: bool
    packet_bytes: int
    ignores_case: bool
    database: str
    zone: str
    id: str
    user: str

    def fold(self, name: str) -> str:
        """As the server compares names of databases and tables: by case only where its files do."""
        return name.lower() if self.ignores_case else name

    @property
    def name(self) -> str:
        return f"{'MariaDB' if self.is_mariadb else 'MySQL'} {self.version}"

    @property
    def collation(self) -> str:
        """Compares texts by all of their characters, trailing blanks included."""
        return "utf8mb4_nopad_bin" if self.is_mariadb else "utf8mb4_0900_bin"


def facts_of(row: Sequence[Any], *, is_mariadb: bool, database: str, id: str) -> Facts:
    """``row`` answers :data:`QUERY`; ``database`` is the one that the connection names."""
    version, _, local, packet, case, current, zone, system_zone, user = row
    return Facts(
        version=version.partition("-")[0],
        is_mariadb=is_mariadb,
        takes_files=local == 1,
        packet_bytes=packet,
        ignores_case=case != 0,
        database=current or database,
        zone=system_zone if zone == "SYSTEM" else zone,
        id=id,
        user=user,
    )
