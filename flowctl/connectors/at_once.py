"""Several questions to one system at once: each takes a few small requests, which leave the GIL free."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

_THREADS = 16
Name = TypeVar("Name")
Question = TypeVar("Question")
Answer = TypeVar("Answer")


def at_once(ask: Callable[[Question], Answer], questions: Mapping[Name, Question]) -> dict[Name, Answer]:
    """Asks each question; answers by the same names."""
    with ThreadPoolExecutor(min(_THREADS, len(questions) or 1)) as pool:
        return dict(zip(questions, pool.map(ask, questions.values()), strict=True))
