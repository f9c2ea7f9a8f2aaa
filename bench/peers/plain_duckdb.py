"""Runs in the environment ``check``: ``plain_duckdb.py FILE SCAN`` copies what DuckDB's own extension scans into a new
file, with the password in the environment."""

import importlib
import sys
from pathlib import Path

import duckdb  # type: ignore[import-not-found, unused-ignore]


def main(file: str, scan: str) -> None:
    package = importlib.import_module("duckdb_extension_postgres_scanner")
    extension = next(Path(package.__path__[0]).glob(f"extensions/v{duckdb.__version__}/*.duckdb_extension"))
    with duckdb.connect(file) as database:
        database.execute(f"LOAD '{extension}'")
        database.execute(f"CREATE TABLE lineitem AS FROM {scan}")


if __name__ == "__main__":
    main(*sys.argv[1:])
