"""Runs in the environment ``check``: row count, a sum, a digest of all rows, and types of relations that DuckDB reads.

The digest is the sum of the row hashes, so order does not matter. If ``types`` are given, values are cast to them
first: a decimal that arrived as a float is equal if the number is; its type is reported separately.
"""

import importlib
import json
import sys
from pathlib import Path

import duckdb  # type: ignore[import-not-found, unused-ignore]

_EXTENSIONS = ("delta", "postgres_scanner", "avro", "iceberg")


def main() -> None:
    request = json.load(sys.stdin)
    database = duckdb.connect(config={"memory_limit": "4GB", "extension_directory": request["scratch"]})
    for name in _EXTENSIONS:
        package = importlib.import_module(f"duckdb_extension_{name}")
        file = next(Path(package.__path__[0]).glob(f"extensions/v{duckdb.__version__}/*.duckdb_extension"))
        database.execute(f"LOAD '{file}'")
    database.execute("SET TimeZone = 'UTC'")
    rows, amount, digest, types = 0, 0, 0, {}
    for relation in request["relations"]:
        if relation["attach"]:
            database.execute(f"ATTACH '{relation['attach']}' AS attached (READ_ONLY)")
        types = {row[0]: row[1] for row in database.execute(f"DESCRIBE SELECT * FROM {relation['sql']}").fetchall()}
        wanted = request["types"] or types
        absent = [name for name in wanted if name not in types]
        if absent:
            sys.exit(f"columns are missing: {', '.join(absent)}")
        values = [f'TRY_CAST("{name}" AS {kind})' for name, kind in wanted.items()]
        summed = request["amount"]
        total = f'sum(TRY_CAST("{summed}" AS {wanted[summed]}))' if summed else "0"
        found = database.execute(
            f"SELECT count(*), {total}, coalesce(sum(hash({', '.join(values)})::HUGEINT), 0)"
            f" FROM {relation['sql']} WHERE {relation['where']}"
        ).fetchone()
        assert found is not None
        rows, amount, digest = rows + found[0], amount + (found[1] or 0), digest + found[2]
    json.dump({"rows": rows, "amount": str(amount), "digest": str(digest), "types": types}, sys.stdout)


if __name__ == "__main__":
    main()
