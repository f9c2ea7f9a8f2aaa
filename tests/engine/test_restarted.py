"""An engine for a process that runs for weeks: replaced once it has grown too large, and only while nothing uses it."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, cast

from flowctl.engine.base import MOST_USES, Engine
from flowctl.engine.lazy import LazyEngine, RestartedEngine


class Grown(Engine):
    """An engine without a process, whose sessions are numbers."""

    def __init__(self) -> None:
        super().__init__(cast(Any, 0))
        self.made = 0
        self.ended: list[Any] = []
        self.swollen = False

    def new_session(self, *, interpreted: bool) -> Any:
        self.made += 1
        return self.made

    def end_session(self, session: Any) -> None:
        self.ended.append(session)

    def is_swollen(self) -> bool:
        return self.swollen


def test_a_session_that_was_used_often_is_renewed() -> None:
    engine = Grown()
    for _ in range(MOST_USES):
        engine.renew(["orders"])
        assert engine.session_for("orders") == 1
    engine.session_for("lines")
    engine.renew(["orders", "lines", "unknown"])
    assert engine.ended == [1]
    assert (engine.session_for("orders"), engine.session_for("lines")) == (3, 2)


def test_a_swollen_engine_is_replaced_once_nothing_uses_it() -> None:
    engines: list[Grown] = []

    def start(_stack: ExitStack) -> Engine:
        engines.append(Grown())
        return engines[-1]

    with RestartedEngine(lambda: LazyEngine(start, {})) as engine:
        engine.session("orders")
        engine.session("lines")
        engines[0].swollen = True
        engine.renew(["orders"])
        engine.session("orders")
        assert len(engines) == 1  # `lines` is still at work
        engine.renew(["orders", "lines"])
        engine.session("orders")
        assert len(engines) == 2
        engine.renew(["orders"])
        engine.session("orders")
        assert len(engines) == 2
