"""Two and three processes of one number, in every order of arrival: each number counts once, on every target.

The short form is in `make test`, the long one in `make test-full`.
"""

from __future__ import annotations

import itertools
import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from flowctl.connectors.delta import log
from flowctl.connectors.delta.location import TableLocation, location_of
from flowctl.connectors.delta.table import open_existing
from flowctl.connectors.lake.record import app_id
from flowctl.model.mode import Mode
from flowctl.model.table_info import ObjectName
from tests.connectors.writing import LINEAGE, TABLE
from tests.e2e.racers import OF_ALL, Racers, Track, racers, sail_environment
from tests.e2e.targets import KINDS, Databases, Kind, TargetPlace, kinds_with, place
from tests.services import kafka
from tests.services.s3 import S3Server

pytestmark = pytest.mark.server

#: What the racers of one number do.
PARTS = (
    ("disturbed", "disturbed", "disturbed"), ("disturbed", "disturbed", "write"), ("write", "write", "write"),
    ("void", "disturbed", "disturbed"), ("void", "write", "disturbed"), ("void", "void", "write"),
)  # fmt: skip
SHORT, LONG = 12, 160
MODES = (*(pytest.param(mode, marks=pytest.mark.full) for mode in ("append", "truncate")), "merge")
Row = tuple[int, str]


@pytest.fixture(scope="module")
def on_sail(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Racers]:
    with racers(tmp_path_factory.mktemp("racers"), ["sail"] * 3) as found:
        yield found


def raced(field: Racers, track: Track, mode: str, numbers: int, read: Callable[[], list[Row]]) -> dict[int, list[str]]:
    """Each number's rows are of one racer, or of none where it is a void; and every racer was told so. Returns the
    racers' names in the rows of each number."""
    field.on(track)
    chosen = random.Random(f"{track} {mode}")
    outcomes: dict[int, list[str]] = {}
    wrong: dict[int, Any] = {}
    for seq in range(1, numbers + 1):
        parts = list(chosen.choice(PARTS if seq > 1 else PARTS[:3]))
        chosen.shuffle(parts)
        outcomes[seq] = field.race(seq, mode, parts)
        if unknown := [one for one in outcomes[seq] if one not in ("data", "void", "conflict")]:
            wrong[seq] = (parts, unknown)
    assert not wrong, wrong
    rows = read()
    names = {seq: sorted(name for id, name in rows if id // 2 == seq) for seq in outcomes}
    newest = numbers if mode == "truncate" else None
    for seq, told in outcomes.items():
        became = {one for one in told if one != "conflict"}
        replaced = newest is not None and any("data" in outcomes[later] for later in range(seq + 1, newest + 1))
        expected = 0 if became == {"void"} or replaced else 2
        if len(became) != 1 or len(names[seq]) != expected or len(set(names[seq])) > 1:
            wrong[seq] = (told, names[seq])
    print(f"{track.type} {mode}: {numbers} numbers, {Counter(one for told in outcomes.values() for one in told)}")
    assert not wrong, f"{len(wrong)} of {numbers} numbers: {wrong}"
    return names


def delta_track(root: str, **fields: Any) -> Track:
    return Track("delta", {"path": root}, **fields)


def read_delta(track: Track) -> list[Row]:
    """The live rows, and no number twice in the log."""
    location = location_of(str(track.options["path"]), ObjectName(track.name), track.storage)
    table = open_existing(location)
    app = app_id(LINEAGE, TABLE)
    numbers = [
        action["txn"]["version"]
        for version in range(table.version + 1)
        for action in log.read_entry(location, version)
        if action.get("txn", {}).get("appId") == app
    ]
    doubled = [number for number, times in Counter(numbers).items() if times > 1]
    assert not doubled, f"{len(doubled)} of {max(numbers)} numbers are in the log twice: {doubled}"
    return rows_of_files(location, table.files)


def rows_of_files(location: TableLocation, files: Sequence[Mapping[str, Any]]) -> list[Row]:
    found: list[Row] = []
    for file in files:
        assert "deletionVector" not in file, "no racer updates a row"
        with location.file_system().open(f"{location.url}/{file['path']}", "rb") as opened:
            rows = pq.ParquetFile(opened).read().to_pylist()
        found += [(row["id"], row.get("name", file["partitionValues"].get("name"))) for row in rows]
    return found


def track_of(target: TargetPlace) -> Track:
    given = {name: value for name, value in target.options.items() if name != "type"}
    folders = {name: str(target.folder / given[name]) for name in ("path", "warehouse") if name in given}
    return Track(target.kind, given | folders | ({"url": target.database} if target.database else {}))


def read_place(target: TargetPlace) -> list[Row]:
    return [(int(str(id)), str(name)) for id, name in target.fetch('SELECT "id", "name" FROM {table}')]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("numbers", [SHORT, pytest.param(LONG, marks=pytest.mark.full)])
def test_delta_with_flowctls_own_commits(on_sail: Racers, tmp_path: Path, mode: str, numbers: int) -> None:
    track = delta_track(str(tmp_path / "lake"))
    raced(on_sail, track, mode, numbers, lambda: read_delta(track))


@pytest.mark.full
@pytest.mark.parametrize("mode", ["append", "truncate", "merge"])
@pytest.mark.parametrize("partition_by", [(), ("name",)], ids=["own", "statements"])
def test_delta_with_spark(tmp_path_factory: pytest.TempPathFactory, mode: str, partition_by: tuple[str, ...]) -> None:
    """Partitioned tables are written by Spark's own statements, others by flowctl's commits too."""
    folder = tmp_path_factory.mktemp("racers")
    track = delta_track(str(folder / "lake"), partition_by=partition_by)
    with racers(folder, ["local[1]"] * 2 + ["sail"]) as mixed:
        raced(mixed, track, mode, LONG, lambda: read_delta(track))


@pytest.mark.full
@pytest.mark.parametrize("mode", ["append", "truncate"])
def test_delta_on_an_object_store(
    tmp_path_factory: pytest.TempPathFactory, s3_server: S3Server, s3_bucket: str, mode: str
) -> None:
    root = f"s3://{s3_bucket}/lake"
    track = delta_track(root, storage={root: s3_server.storage()})
    with racers(tmp_path_factory.mktemp("racers"), ["sail"] * 3, sail_environment(track)) as there:
        raced(there, track, mode, LONG, lambda: read_delta(track))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("kind", "numbers"),
    [
        *((kind, SHORT) for kind in ("postgres", "sqlite")),
        *(pytest.param(kind, LONG, marks=pytest.mark.full) for kind in KINDS if kind != "delta"),
    ],
)
def test_others(on_sail: Racers, tmp_path: Path, databases: Databases, kind: Kind, mode: Mode, numbers: int) -> None:
    target = place(kind, tmp_path, databases).named("t")
    raced(on_sail, track_of(target), mode, numbers, lambda: read_place(target))


@pytest.mark.full
@pytest.mark.parametrize("kind", kinds_with("scd2"))
def test_histories(on_sail: Racers, tmp_path: Path, databases: Databases, kind: Kind) -> None:
    """Of each number, only what its winner has observed counts, also for a key that every number observes."""
    target = place(kind, tmp_path, databases).named("t")
    names = raced(on_sail, track_of(target), "scd2", 60, lambda: read_place(target))
    won = [found[0] for found in names.values() if found]
    versions = target.fetch(f'SELECT "valid_from", "valid_to", "name" FROM {{table}} WHERE "id" = {OF_ALL}')
    versions.sort(key=lambda version: str(version[0]))
    assert [name for _, _, name in versions] == [name for name, _ in itertools.groupby(won)]
    assert [end for _, end, _ in versions] == [*(start for start, _, _ in versions[1:]), None]


@pytest.mark.full  # a broker only for it
@pytest.mark.parametrize("mode", ["append", pytest.param("merge", marks=pytest.mark.full)])
@pytest.mark.parametrize("numbers", [4, pytest.param(40, marks=pytest.mark.full)])
def test_topics(on_sail: Racers, mode: str, numbers: int) -> None:
    """Each writer fences the others, in the middle of their transactions too."""
    with kafka.broker() as made, made.started() as address:
        kafka.create_topic(address, "t", 2)

        def read() -> list[Row]:
            rows = [json.loads(one.value or b"") for one in kafka.received(address, "t")]
            return [(row["id"], row["name"]) for row in rows]

        raced(on_sail, Track("kafka", {"brokers": address}), mode, numbers, read)
