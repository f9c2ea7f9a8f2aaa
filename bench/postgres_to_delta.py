"""PostgreSQL → Delta, TPC-H ``lineitem``, whole processes, cold: flowctl beside a plain PySpark JDBC script.

``python -m bench.postgres_to_delta [--scale 1] [--rounds 2]``; scale 0.1 is a smoke test. The two take turns on the
same server in one run: take the ratio, not the seconds. Afterwards both tables are compared with the source.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import psycopg

from bench.measure import Measured, measure
from flowctl.run import jars
from tests.services import postgres

HERE = Path(__file__).parent
_TABLE = """
    CREATE TABLE lineitem (
        l_orderkey bigint NOT NULL, l_partkey bigint NOT NULL, l_suppkey bigint NOT NULL, l_linenumber int NOT NULL,
        l_quantity numeric(15,2) NOT NULL, l_extendedprice numeric(15,2) NOT NULL, l_discount numeric(15,2) NOT NULL,
        l_tax numeric(15,2) NOT NULL, l_returnflag text NOT NULL, l_linestatus text NOT NULL, l_shipdate date NOT NULL,
        l_commitdate date NOT NULL, l_receiptdate date NOT NULL, l_shipinstruct text NOT NULL, l_shipmode text NOT NULL,
        l_comment text NOT NULL)
"""
_SPEC = """
version: 1
flow: bench
state: state
connections:
  pg: {type: postgres, url: "%s"}
  lake: {type: delta, path: flowctl}
tables:
  lineitem: {from: pg:public.lineitem, to: lake, mode: truncate}
"""


@dataclass(frozen=True)
class Contents:
    """What two tables must agree in."""

    rows: int
    revenue: Decimal


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=2)
    arguments = parser.parse_args()
    with postgres.server() as url, tempfile.TemporaryDirectory(prefix="flowctl-bench-") as folder:
        expected = load(url, data(arguments.scale))
        results: dict[str, list[Measured]] = {"plain PySpark": [], "flowctl": []}
        for at in range(arguments.rounds):
            place = Path(folder, str(at))
            place.mkdir()
            results["plain PySpark"].append(run_plain(url, place))
            results["flowctl"].append(run_flowctl(url, place))
            for made in ("plain", "flowctl/lineitem"):
                assert contents(place / made) == expected, f"{made} is not the source"
    print(json.dumps(report(arguments.scale, expected.rows, results), indent=2))


def report(scale: float, rows: int, results: dict[str, list[Measured]]) -> dict[str, object]:
    """Medians of all rounds; ``ratio`` is how many times faster flowctl was."""
    seconds = {name: statistics.median(one.seconds for one in measured) for name, measured in results.items()}
    peaks = {name: max(one.peak_bytes for one in measured) for name, measured in results.items()}
    return {
        "case": "postgres → delta, lineitem",
        "scale": scale,
        "rows": rows,
        "seconds": {name: round(value, 1) for name, value in seconds.items()},
        "rows_per_second": {name: round(rows / value) for name, value in seconds.items()},
        "peak_mib": {name: value >> 20 for name, value in peaks.items()},
        "ratio": round(seconds["plain PySpark"] / seconds["flowctl"], 2),
    }


def data(scale: float) -> Path:
    """The table as CSV, made once and kept."""
    folder = HERE / "data" / f"sf{scale:g}"
    file = folder / "lineitem.csv"
    if not file.exists():
        folder.mkdir(parents=True, exist_ok=True)
        tool = Path(sys.executable).with_name("tpchgen-cli")
        options = ["csv", "-s", f"{scale:g}", "--tables=lineitem", f"--output-dir={folder}"]
        subprocess.run([str(tool), *options], check=True, stdout=subprocess.DEVNULL)
    return file


def load(url: str, file: Path) -> Contents:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(_TABLE)
        with (
            file.open("rb") as source,
            connection.cursor().copy("COPY lineitem FROM STDIN (FORMAT csv, HEADER)") as copy,
        ):
            while block := source.read(1 << 20):
                copy.write(block)
        connection.execute("VACUUM ANALYZE lineitem")
        row = connection.execute("SELECT count(*), sum(l_extendedprice) FROM lineitem").fetchone()
    assert row is not None
    return Contents(*row)


def run_plain(url: str, place: Path) -> Measured:
    credentials, _, address = url.removeprefix("postgresql://").rpartition("@")
    user, _, password = credentials.partition(":")
    class_path = os.pathsep.join(map(str, jars.ensure(["delta", "postgresql"])))
    script = [sys.executable, str(HERE / "plain_pyspark.py")]
    return measure(
        [*script, f"jdbc:postgresql://{address}", user, password, "lineitem", "plain", class_path], {}, place
    )


def run_flowctl(url: str, place: Path) -> Measured:
    credentials, _, address = url.removeprefix("postgresql://").rpartition("@")
    user, _, password = credentials.partition(":")
    spec = place / "flow.yaml"
    spec.write_text(_SPEC % f"postgresql://{user}:${{secret:env:BENCH_PASSWORD}}@{address}")
    return measure([sys.executable, "-m", "flowctl", "apply", str(spec)], {"BENCH_PASSWORD": password}, place)


def contents(folder: Path) -> Contents:
    """Read file by file: a table written once has no deletion vectors, which pyarrow does not know."""
    import pyarrow.compute as pc
    import pyarrow.dataset as ds
    from deltalake import DeltaTable

    dataset = ds.dataset(DeltaTable(str(folder)).file_uris())
    revenue = sum(
        (pc.sum(batch["l_extendedprice"]).as_py() or Decimal(0) for batch in dataset.to_batches(["l_extendedprice"])),
        Decimal(0),
    )
    return Contents(dataset.count_rows(), revenue)


if __name__ == "__main__":
    main()
