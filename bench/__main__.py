"""``python -m bench setup``, ``list``, ``run``, ``compare``."""

from __future__ import annotations

import argparse
import compileall
import datetime as dt
import sys
from pathlib import Path

from bench import compare, followed_topic, latency, machine, peers, report, results
from bench.case import Case
from bench.cases import CASES
from bench.programs import debezium, pyspark
from bench.rounds import run_case
from tests.services.processes import NotInstalled

_RESULTS = Path(__file__).parent / "RESULTS.md"


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Compares flowctl with its peers.")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("setup", help="creates the peers' environments")
    commands.add_parser("list", help="lists the cases and their competitors")
    commands.add_parser("report", help="writes RESULTS.md again from the saved results").add_argument(
        "--results", type=Path, default=_RESULTS
    )
    run = commands.add_parser("run", help="runs the cases and writes the results")
    run.add_argument("--scale", type=float, default=1.0, help="TPC-H scale factor; 0.1 for a smoke run")
    run.add_argument("--rounds", type=int, default=3, help="number of rounds; the median counts")
    run.add_argument("--case", action="append", default=[], choices=[case.name for case in CASES], metavar="NAME")
    run.add_argument("--only", action="append", default=[], metavar="COMPETITOR", help="runs only these competitors")
    run.add_argument("--results", type=Path, default=_RESULTS, help="JSON goes into the folder results next to it")
    late = commands.add_parser(
        "latency", help="measures how soon a followed stream's changes are visible; prints a table"
    )
    late.add_argument("--rate", type=int, default=1000, help="changes per second")
    late.add_argument("--seconds", type=float, default=60.0, help="for each combination of target and interval")
    topic = commands.add_parser("topic", help="measures a followed topic: latency, messages per second, memory")
    topic.add_argument("--rate", type=int, default=10_000, help="messages per second")
    topic.add_argument("--seconds", type=float, default=60.0, help="for each combination")
    topic.add_argument("--burst", type=int, default=2_000_000, help="messages that are read at once")
    turns = commands.add_parser("compare", help="measures two checkouts of flowctl in turns, and prints the ratios")
    turns.add_argument("old", type=Path, help="a checkout, such as a git worktree")
    turns.add_argument("new", type=Path, help="another one")
    turns.add_argument("--scale", type=float, default=0.1)
    turns.add_argument("--rounds", type=int, default=3)
    turns.add_argument("--case", action="append", default=[], choices=[case.name for case in CASES], metavar="NAME")
    turns.add_argument("--only", action="append", default=[], metavar="COMPETITOR", help="leaves out all others")
    arguments = parser.parse_args()
    match arguments.command:
        case "setup":
            peers.set_up()
            debezium.set_up()
            pyspark.set_up()
        case "list":
            print("\n\n".join(map(_described, CASES)))
        case "latency":
            for line in latency.table(arguments.rate, arguments.seconds):
                print(line, flush=True)
        case "topic":
            for line in followed_topic.table(arguments.rate, arguments.seconds, arguments.burst):
                print(line, flush=True)
        case "report":
            _write(arguments.results)
        case chosen:
            try:
                return _compare(arguments) if chosen == "compare" else _run(arguments)
            except (peers.NotSetUp, NotInstalled) as error:
                print(error, file=sys.stderr)
                return 1
    return 0


def _run(arguments: argparse.Namespace) -> int:
    """Exit code 1 if one of flowctl's own runs failed or had a wrong result."""
    good = True
    for case in _chosen(arguments):
        outcome = run_case(case, arguments.scale, arguments.rounds, _say, tuple(arguments.only))
        result = results.result_of(
            case.name,
            outcome,
            scale=arguments.scale,
            rounds=arguments.rounds,
            date=f"{dt.datetime.now(dt.UTC):%Y-%m-%d %H:%M} UTC",
            commit=machine.commit(),
            machine=machine.machine(),
            versions=machine.versions(),
        )
        results.save(result, _folder(arguments.results))
        _write(arguments.results)
        good &= not any(each.ours and (each.failed or each.right is False) for each in result.figures)
    return 0 if good else 1


def _compare(arguments: argparse.Namespace) -> int:
    """Compiles both trees first: an import that has to compile takes twice as long."""
    old, new = arguments.old.resolve(), arguments.new.resolve()
    for tree in (old, new):
        compileall.compile_dir(tree / "flowctl", quiet=1)
    for case in _chosen(arguments):
        both = compare.in_turns(case, old, new, arguments.only)
        outcome = run_case(both, arguments.scale, arguments.rounds, _say)
        print(f"{case.name}, scale {arguments.scale:g}, median of {arguments.rounds}")
        print("\n".join(f"  {line}" for line in compare.lines(outcome)), flush=True)
    return 0


def _chosen(arguments: argparse.Namespace) -> list[Case]:
    return [case for case in CASES if (case.name in arguments.case if arguments.case else case.by_default)]


def _write(file: Path) -> None:
    file.write_text(report.render(CASES, results.load(_folder(file))))


def _folder(file: Path) -> Path:
    return file.parent / "results"


def _described(case: Case) -> str:
    only = "" if case.by_default else "\n  Runs only when named."
    return "\n".join(
        [
            f"{case.name}: {case.title}{only}",
            f"  {case.says}",
            *(f"  - {each.name}: {each.how}" for each in case.competitors),
        ]
    )


def _say(text: str) -> None:
    print(f"{dt.datetime.now():%H:%M:%S} {text}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
