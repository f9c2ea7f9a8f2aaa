"""Processes that all write the same sequence numbers, in every order of arrival.

A racer is one process with an engine of its own. It tries a number as a run does: write, again after an error that may
go away by itself, and no more once the number is somebody else's. ``FLOWCTL_TEST_DELAYS`` puts random delays around
each of its looks at the log or the commits table. What it writes carries its name, so that two writers of one number
show in the rows.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import os
import random
import subprocess
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowctl import delays
from flowctl.connectors import registry
from flowctl.connectors.base import OpenContext
from flowctl.connectors.registry import open as open_connection
from flowctl.connectors.target import DETECTED_COLUMN, OP_COLUMN, Target
from flowctl.diagnostics import Mark
from flowctl.engine.start import open_engine
from flowctl.errors import StateConflict, TransientError
from flowctl.model.table_info import ObjectName
from flowctl.spec.spec import Connection, Layout, SparkSettings
from flowctl.storage.buffer import Buffer
from flowctl.storage.options import deltalake_options
from tests.conftest import TEST_JARS
from tests.connectors.target_matrix import Place
from tests.connectors.writing import COLUMNS, HISTORY, Row, Writer, upserts

if TYPE_CHECKING:
    from flowctl.storage.buffer import Buffer

#: Before each line that a racer says; engines write to standard output too.
_SAYS = "racer: "
_TRIES = 20
#: The key of a history that is a row of every number.
OF_ALL = 1
_LONGEST_DELAY = 0.03
#: Small enough that three fit beside each other.
_SPARK = {"spark.driver.memory": "700m", "spark.sql.shuffle.partitions": "1", "spark.ui.enabled": "false"}


@dataclass(frozen=True)
class Track:
    """A table that is not there yet. ``layout``: Delta's statements by Spark are raced where flowctl does not write the
    log itself."""

    type: str
    options: Mapping[str, Any]
    name: tuple[str, ...] = ("t",)
    storage: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    partition_by: tuple[str, ...] = ()

    @contextmanager
    def opened(self, scratch: Buffer | None = None) -> Iterator[Target]:
        connection = Connection("to", self.type, dict(self.options), Mark("spec.yaml", 1))
        with open_connection(connection, OpenContext(storage=self.storage, buffer=scratch)) as connector:
            assert connector.target is not None
            yield connector.target

    def to_json(self) -> dict[str, Any]:
        return {
            "type": self.type,
            "options": dict(self.options),
            "name": list(self.name),
            "storage": {url: dict(keys) for url, keys in self.storage.items()},
            "partition_by": list(self.partition_by),
        }


def track_of(document: Mapping[str, Any]) -> Track:
    name, partition_by = tuple(document["name"]), tuple(document["partition_by"])
    return Track(document["type"], document["options"], name, document["storage"], partition_by)


@dataclass(frozen=True)
class Racers:
    """Running processes; ``race`` gives each its part of one number and waits for what becomes of it."""

    processes: Sequence[subprocess.Popen[str]]

    def on(self, track: Track) -> None:
        self._all([{"do": "track", **track.to_json()}] * len(self.processes))

    def race(self, seq: int, mode: str, parts: Sequence[str]) -> list[str]:
        """``parts``: of each racer, ``write``, ``void``, or ``disturbed`` (somebody else commits right before its first
        commit). Answers: ``data`` or ``void`` (what the number then is), ``conflict``, or an error's text."""
        return self._all([{"do": part, "seq": seq, "mode": mode} for part in parts])

    def _all(self, tasks: Sequence[Mapping[str, Any]]) -> list[str]:
        for process, task in zip(self.processes, tasks, strict=True):
            assert process.stdin is not None
            process.stdin.write(json.dumps(task) + "\n")
            process.stdin.flush()
        return [_answer(process) for process in self.processes]


@contextmanager
def racers(folder: Path, engines: Sequence[str], environment: Mapping[str, str] | None = None) -> Iterator[Racers]:
    """One for each of ``engines`` (what ``spark.url`` takes), ready."""
    with ExitStack() as stack:
        processes = []
        for number, engine in enumerate(engines):
            own = folder / f"racer-{number}"
            own.mkdir(parents=True)
            log = stack.enter_context((own / "log").open("w"))
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.e2e.racers", str(number), engine, str(own)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                env={**os.environ, delays.KEY: str(_LONGEST_DELAY), **(environment or {})},
            )
            stack.callback(_ended, process)
            processes.append(process)
        found = Racers(processes)
        for process in processes:
            _answer(process)
        yield found


def _ended(process: subprocess.Popen[str]) -> None:
    process.communicate(timeout=60)  # closes its input, which ends it


def _answer(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    for line in process.stdout:
        if line.startswith(_SAYS):
            return line.removeprefix(_SAYS).strip()
    raise AssertionError(f"a racer ended: {process.wait()}; see its log")


def _say(text: str) -> None:
    print(_SAYS + " ".join(text.split()), flush=True)


def _run(name: str, engine: str, folder: str) -> None:
    """The process: one task per line of standard input."""
    conf = _SPARK if engine.startswith("local") else {}
    environment = json.loads(os.environ.get("RACER_STORAGE", "{}"))
    with (
        open_engine(
            SparkSettings(engine, conf),
            TEST_JARS,
            {},
            "small",
            extensions=registry.extensions(),
            storage_environment=environment,
        ) as started,
        Buffer(folder, f"run-{name}", {}) as buffer,
        ExitStack() as stack,
    ):
        started.spark.createDataFrame([(1,)], "id int").toArrow()  # what a first query does once
        _say("ready")
        hand: _Hand | None = None
        for line in sys.stdin:
            task = json.loads(line)
            if task["do"] == "track":
                stack.close()
                track = track_of(task)
                target = stack.enter_context(track.opened(buffer))
                place = Place(
                    track.type, dict(track.options), target, ObjectName(track.name), lambda _: [], lambda _: None
                )
                hand = _Hand(name, Writer(started.spark, place), track)
                _say("ready")
                continue
            assert hand is not None
            _say(hand.outcome(task["do"], task["seq"], task["mode"]))


@dataclass(frozen=True)
class _Hand:
    name: str
    writer: Writer
    track: Track

    def outcome(self, part: str, seq: int, mode: str) -> str:
        for number in range(_TRIES):
            try:
                again = "write" if part == "disturbed" else part
                return "void" if self._tried(again if number else part, seq, mode) else "data"
            except TransientError:
                threading.Event().wait(random.random() * _LONGEST_DELAY)
            except StateConflict:
                return "conflict"
            except Exception:  # noqa: BLE001 - told to the test
                return traceback.format_exc().replace("\n", " | ")
        return "out of tries"

    def _tried(self, part: str, seq: int, mode: Any) -> bool:
        """Whether the number then is a void."""
        writer, layout = self.writer, Layout(partition_by=self.track.partition_by)
        columns = HISTORY if mode == "scd2" else COLUMNS
        fields: dict[str, Any] = {"columns": columns, **({"compared": ("name",)} if mode == "scd2" else {})}
        if part == "void":
            return writer.void(seq, mode, layout=layout, **fields).void
        rows = [{"id": 2 * seq + at, "name": self.name, "amount": None} for at in range(2)]
        there = writer.place.target.describe([writer.place.object])[writer.place.object] is not None
        create = writer.place.target.create_statements(writer.place.object, list(columns), layout)
        batch = self._observed(seq, rows) if mode == "scd2" else upserts(*rows) if mode == "merge" else rows
        fields["in_memory"] = random.random() < 0.8
        if part == "disturbed":
            fields["before_commit"] = self._disturb
        if mode == "merge":
            fields["rows"] = len(rows)
        return writer.write(batch, seq, mode, layout=layout, create=() if there else create, **fields).void

    def _observed(self, seq: int, rows: Sequence[Row]) -> list[Row]:
        """Of a history: keys of this number alone, and one that each number observes anew."""
        own = {
            "valid_from": dt.datetime(2026, 1, 1, tzinfo=dt.UTC) + dt.timedelta(minutes=seq),
            "row_hash": hashlib.sha256(self.name.encode()).hexdigest(),
            OP_COLUMN: "U",
            DETECTED_COLUMN: False,
        }
        return [{"id": id, "name": self.name, **own} for id in (*(row["id"] for row in rows), OF_ALL)]

    def _disturb(self) -> None:
        """Somebody else's commit without data, as the next version; a number of its own where there is no log."""
        if self.track.type == "delta":
            from flowctl.connectors.delta import actions, commit
            from flowctl.connectors.delta.location import location_of
            from flowctl.connectors.delta.table import open_existing

            location = location_of(str(self.track.options["path"]), self.writer.place.object, self.track.storage)
            info = actions.commit_info("", "WRITE", {"mode": "Append"}, actions.EMPTY)
            commit.publish(location, open_existing(location).version + 1, [info])


def sail_environment(track: Track) -> dict[str, str]:
    """What a racer on Sail needs to reach an object store."""
    root = str(track.options["path"])
    return {"RACER_STORAGE": json.dumps(deltalake_options(root, track.storage))}


if __name__ == "__main__":
    _run(*sys.argv[1:])
