"""A process that is killed inside the commit, as `kill -9` does it, and the same number again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest

from tests.connectors.writing import Writer, upserts

CHILD = """
import json, sys
from flowctl.connectors import registry
from flowctl.model.table_info import ObjectName
from flowctl.engine.start import open_engine
from flowctl.spec.spec import SparkSettings
from flowctl.storage.buffer import Buffer
from tests.conftest import TEST_JARS, TEST_SPARK_CONF
from tests.connectors.target_matrix import Place, opened
from tests.connectors.writing import Writer

type, options, parts, rows, seq, mode, counted, folder = json.loads(sys.argv[1])
with (
    open_engine(
        SparkSettings("local[2]", TEST_SPARK_CONF), TEST_JARS, {}, "small", extensions=registry.extensions()
    ) as engine,
    Buffer(folder, "run-child", {}) as buffer,
    opened(type, options, buffer) as target,
):
    place = Place(type, options, target, ObjectName(tuple(parts)), read=None, execute=None)
    Writer(engine.spark, place).write(rows, seq, mode, **counted)
"""


@pytest.mark.full
@pytest.mark.parametrize(("mode", "counted"), [("truncate", {}), ("merge", {}), ("merge", {"rows": 2})])
def test_killed_inside_its_commit_a_number_leaves_nothing_and_is_done_again(
    writer: Writer, mode: str, counted: dict[str, int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A merge of rows that are counted is another one on Delta: flowctl's own."""
    place = writer.place
    batch = upserts if mode == "merge" else lambda *rows: list(rows)
    first = batch({"id": 1, "name": "a", "amount": None}, {"id": 2, "name": "a", "amount": None})
    second = batch({"id": 2, "name": "b", "amount": None}, {"id": 3, "name": "b", "amount": None})
    writer.write(first, 1, mode)
    before = sorted(place.read(["id", "name"]))
    task = [
        place.type,
        place.options,
        place.object.parts,
        second,
        2,
        mode,
        counted,
        str(tmp_path_factory.mktemp("child")),
    ]
    died = subprocess.run(
        [sys.executable, "-c", CHILD, json.dumps(task)],
        env={**os.environ, "FLOWCTL_CRASH_AT": "in_commit"},
        capture_output=True,
        timeout=300,
    )
    assert died.returncode == -signal.SIGKILL, died.stderr.decode()
    assert sorted(place.read(["id", "name"])) == before
    assert writer.committed().seq == 1
    writer.write(second, 2, mode, **counted)
    kept = [(1, "a")] if mode == "merge" else []
    assert sorted(place.read(["id", "name"])) == [*kept, (2, "b"), (3, "b")]
