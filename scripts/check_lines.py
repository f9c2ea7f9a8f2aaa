"""Fails when a module is longer than a person reads at once. ``python scripts/check_lines.py FOLDER…``"""

import sys
from pathlib import Path

LIMIT = 400


def main(folders: list[str]) -> int:
    counts = {path: _lines(path) for folder in folders for path in _modules(Path(folder))}
    too_long = {path: count for path, count in counts.items() if count > LIMIT}
    for path, count in too_long.items():
        print(f"{path}:{LIMIT + 1}: {count} lines, at most {LIMIT}: split it by what it speaks of")
    return 1 if too_long else 0


def _modules(folder: Path) -> list[Path]:
    """Not those of environments that lie inside, such as ``bench/.venvs``."""
    found = sorted(folder.rglob("*.py"))
    return [path for path in found if not any(part.startswith(".") for part in path.relative_to(folder).parts)]


def _lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
