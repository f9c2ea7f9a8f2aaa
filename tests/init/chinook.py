"""Chinook, the sample database of a music shop, with its tables, keys and types, and a few of its rows.

Source: github.com/lerocha/chinook-database (MIT), `Chinook_Sqlite.sql` and `Chinook_PostgreSql_SerialPKs.sql`.
"""

from __future__ import annotations

import re

#: Table to its columns: name, type, whether it may be null; the key's columns come first, as many as the number says.
_TABLES = {
    "Artist": (1, "ArtistId INTEGER, Name NVARCHAR(120)?"),
    "Album": (1, "AlbumId INTEGER, Title NVARCHAR(160), ArtistId INTEGER"),
    "Employee": (
        1,
        "EmployeeId INTEGER, LastName NVARCHAR(20), FirstName NVARCHAR(20), Title NVARCHAR(30)?, ReportsTo INTEGER?,"
        " BirthDate DATETIME?, HireDate DATETIME?, Address NVARCHAR(70)?, City NVARCHAR(40)?, Email NVARCHAR(60)?",
    ),
    "Customer": (
        1,
        "CustomerId INTEGER, FirstName NVARCHAR(40), LastName NVARCHAR(20), Company NVARCHAR(80)?, Email NVARCHAR(60),"
        " SupportRepId INTEGER?",
    ),
    "Genre": (1, "GenreId INTEGER, Name NVARCHAR(120)?"),
    "MediaType": (1, "MediaTypeId INTEGER, Name NVARCHAR(120)?"),
    "Playlist": (1, "PlaylistId INTEGER, Name NVARCHAR(120)?"),
    "PlaylistTrack": (2, "PlaylistId INTEGER, TrackId INTEGER"),
    "Track": (
        1,
        "TrackId INTEGER, Name NVARCHAR(200), AlbumId INTEGER?, MediaTypeId INTEGER, GenreId INTEGER?,"
        " Composer NVARCHAR(220)?, Milliseconds INTEGER, Bytes INTEGER?, UnitPrice NUMERIC(10,2)",
    ),
    "Invoice": (
        1,
        "InvoiceId INTEGER, CustomerId INTEGER, InvoiceDate DATETIME, BillingCity NVARCHAR(40)?, Total NUMERIC(10,2)",
    ),
    "InvoiceLine": (
        1,
        "InvoiceLineId INTEGER, InvoiceId INTEGER, TrackId INTEGER, UnitPrice NUMERIC(10,2), Quantity INTEGER",
    ),
}
_ROWS = """
    INSERT INTO Artist VALUES (1, 'AC/DC'), (2, 'Accept');
    INSERT INTO Album VALUES (1, 'For Those About To Rock We Salute You', 1), (2, 'Balls to the Wall', 2);
    INSERT INTO Employee VALUES (1, 'Adams', 'Andrew', 'General Manager', NULL, '1962-02-18 00:00:00',
        '2002-08-14 00:00:00', '11120 Jasper Ave NW', 'Edmonton', 'andrew@chinookcorp.com');
    INSERT INTO Customer VALUES (1, 'Luís', 'Gonçalves', NULL, 'luisg@embraer.com.br', 1);
    INSERT INTO Genre VALUES (1, 'Rock'), (2, 'Jazz'), (3, 'Metal');
    INSERT INTO MediaType VALUES (1, 'MPEG audio file');
    INSERT INTO Playlist VALUES (1, 'Music');
    INSERT INTO PlaylistTrack VALUES (1, 1), (1, 2);
    INSERT INTO Track VALUES (1, 'For Those About To Rock', 1, 1, 1, 'Angus Young', 343719, 11170334, 0.99),
        (2, 'Balls to the Wall', 2, 1, 1, NULL, 342562, 5510424, 0.99);
    INSERT INTO Invoice VALUES (1, 1, '2009-01-01 00:00:00', 'São José dos Campos', 1.98);
    INSERT INTO InvoiceLine VALUES (1, 1, 1, 0.99, 1), (2, 1, 2, 0.99, 1);
"""
#: Rows of each table.
COUNTS = {
    "Artist": 2, "Album": 2, "Employee": 1, "Customer": 1, "Genre": 3, "MediaType": 1, "Playlist": 1,
    "PlaylistTrack": 2, "Track": 2, "Invoice": 1, "InvoiceLine": 2,
}  # fmt: skip


def sqlite_script() -> str:
    return "\n".join(_create(name, key, columns) for name, (key, columns) in _TABLES.items()) + _ROWS


def postgres_script() -> str:
    """In lower case with underscores, and with serial keys."""
    parts = re.split(r"('[^']*')", sqlite_script().replace("DATETIME", "timestamp").replace("NVARCHAR", "varchar"))
    script = "".join(
        part if at % 2 else re.sub(r"\b[A-Z][a-z]\w*", lambda found: postgres_name(found[0]), part)
        for at, part in enumerate(parts)
    )
    return re.sub(r"(\w+) INTEGER NOT NULL(?=[^;]*PRIMARY KEY \(\1\))", r"\1 SERIAL NOT NULL", script)


def postgres_name(table: str) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", table).lower()


def _create(name: str, key: int, columns: str) -> str:
    split = [column.strip() for column in re.split(r",(?!\d)", columns)]
    listed = [column[:-1] if column.endswith("?") else f"{column} NOT NULL" for column in split]
    names = [column.split()[0] for column in split]
    return f"CREATE TABLE {name} ({', '.join(listed)}, PRIMARY KEY ({', '.join(names[:key])}));"
