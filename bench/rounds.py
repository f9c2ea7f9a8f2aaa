"""Runs one case: prepare, load, change, then the competitors in turn, each measured and checked."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from bench import contents, peers
from bench.case import Case, Command, Competitor, Measured, Prepared, Setting, Verdict, World
from bench.contents import Unreadable
from bench.measure import CommandFailed, measure
from bench.servers import SECRETS, Running, keep_tables, new_database, restore_tables, running

Say = Callable[[str], None]


@dataclass
class Entry:
    """The outcome of one competitor. ``skipped`` and ``failed`` are the reasons why it has no further rounds."""

    competitor: Competitor
    skipped: str = ""
    failed: str = ""
    measured: list[Measured] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)

    @property
    def goes_on(self) -> bool:
        return not self.skipped and not self.failed


@dataclass(frozen=True)
class Outcome:
    prepared: Prepared
    entries: tuple[Entry, ...]


def run_case(case: Case, scale: float, rounds: int, say: Say, only: tuple[str, ...] = ()) -> Outcome:
    """``only`` names the competitors to run; empty: all."""
    with ExitStack() as stack:
        folder = stack.enter_context(
            tempfile.TemporaryDirectory(prefix=f"flowctl-bench-{case.name}-", ignore_cleanup_errors=True)
        )
        servers = stack.enter_context(running(case, World(scale, Path(folder))))
        say(f"{case.name}: preparing")
        prepared = case.prepare(servers.world)
        if prepared.source and (why := peers.missing("check")):
            raise peers.NotSetUp(why)
        chosen = [each for each in case.competitors if not only or each.name in only]
        stages = [_Stage(each, servers, prepared, case.longest) for each in chosen]
        for stage in stages:
            stage.set_up(say)
        case.change(servers.world)
        expected = contents.read(prepared.source, prepared.amount, prepared.types) if prepared.source else None
        for stage in stages:
            stage.setting = replace(stage.setting, expected=expected)
            stage.rehearse(say)
        for number in range(rounds):
            for stage in stages:
                stage.round(number + 1, say)
    return Outcome(prepared, tuple(stage.entry for stage in stages))


class _Stage:
    """One competitor's entry, and its target as it was before the change."""

    def __init__(self, competitor: Competitor, servers: Running, prepared: Prepared, longest: float) -> None:
        self.entry = Entry(competitor)
        self._longest = longest
        self._servers = servers
        self._kept = servers.world.folder / f"{competitor.slug}.kept"
        self._output = servers.world.folder / f"{competitor.slug}.out"
        folder = servers.world.folder / competitor.slug
        base = servers.world.postgres.rpartition("/")[0]
        self.setting = Setting(servers.world, folder, f"{base}/{competitor.slug}" if base else "", prepared)

    def set_up(self, say: Say) -> None:
        competitor = self.entry.competitor
        self._empty()
        self.entry.skipped = competitor.missing(self.setting)
        if self.entry.skipped:
            say(f"  {competitor.name}: skipped, {self.entry.skipped}")
        elif competitor.load:
            say(f"  {competitor.name}: loading")
            with self._may_fail(say):
                measure(competitor.load(self.setting), self._output, longest=self._longest)
                shutil.copytree(self.setting.folder, self._kept, symlinks=True)
                if competitor.database:
                    keep_tables(self.setting.database)

    def rehearse(self, say: Say) -> None:
        for _ in range(self.entry.competitor.rehearsals):
            if self.entry.goes_on:
                say(f"  {self.entry.competitor.name}: rehearsing")
                self._restore()
                with self._may_fail(say):
                    measure(self._command(), self._output, longest=self._longest)

    def round(self, number: int, say: Say) -> None:
        competitor = self.entry.competitor
        if not self.entry.goes_on:
            return
        self._restore()
        with self._may_fail(say):
            command = self._command()
            os.sync()  # so that the command does not wait for writes of others
            measured = measure(command, self._output, self._servers.pids, self._longest)
            verdict = competitor.check(self.setting, self._output)
            self.entry.measured.append(measured)
            self.entry.verdicts.append(verdict)
            wrong = f", WRONG: {verdict.says}" if verdict.right is False else ""
            say(f"  round {number}, {competitor.name}: {measured.seconds:.2f} s{wrong}")

    def _command(self) -> Command:
        return self.entry.competitor.command(self.setting)

    def _restore(self) -> None:
        """Restores the kept target, or empties it if none was kept. The path stays the same: state may contain it."""
        competitor = self.entry.competitor
        if competitor.load is None:
            self._empty()
            return
        shutil.rmtree(self.setting.folder)
        shutil.copytree(self._kept, self.setting.folder, symlinks=True)
        if competitor.database:
            restore_tables(self.setting.database)

    def _empty(self) -> None:
        shutil.rmtree(self.setting.folder, ignore_errors=True)
        self.setting.folder.mkdir()
        if self.entry.competitor.database:
            new_database(self.setting.world.postgres, self.entry.competitor.slug)

    @contextmanager
    def _may_fail(self, say: Say) -> Iterator[None]:
        try:
            yield
        except (CommandFailed, Unreadable) as error:
            self.entry.failed = _without_secrets(str(error))
            if self.entry.competitor.database:
                self._empty()  # a server continues the statements of a killed client
            say(f"  {self.entry.competitor.name}: failed, {self.entry.failed}")


def _without_secrets(text: str) -> str:
    for name in SECRETS:
        if secret := os.environ.get(name):
            text = text.replace(secret, "***")
    return text
