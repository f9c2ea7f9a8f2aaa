"""The command line. One module per command; this one only gathers them."""

from __future__ import annotations


def main() -> None:
    raise SystemExit("not yet")
