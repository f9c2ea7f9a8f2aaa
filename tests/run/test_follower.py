"""How long a stream that is followed waits after errors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast
from unittest.mock import Mock

from flowctl.diagnostics import Mark
from flowctl.errors import TransientError
from flowctl.resolve.resolve import PlanOptions
from flowctl.run import events
from flowctl.run.streaming.follower import Follower

COMMITTED = events.RoundCommitted("cdc", 1, "0/1", 2, 0.1)


class Failing(Follower):
    """Each episode commits so many rounds, and fails. Pauses are noted instead of made."""

    rounds: Sequence[int] = ()
    pauses: list[float]

    def _lease(self) -> Any:
        return Mock(__enter__=Mock(), __exit__=Mock(return_value=False))

    def _episode(self, lease: Any) -> None:
        for _ in range(self.rounds[len(self.pauses)]):
            self._listen(COMMITTED)
        raise TransientError("the server is down")

    def _wait(self, seconds: float) -> None:
        self.pauses.append(seconds)

    @property
    def _is_stopping(self) -> bool:
        return len(self.pauses) == len(self.rounds)


def pauses(*rounds: int) -> list[float]:
    passes = Mock()
    passes.spec.streams = {"cdc": Mock(mark=Mark("flow.yaml", 1))}
    one = Failing("cdc", cast(Any, passes), PlanOptions(), print)
    one.rounds, one.pauses = rounds, []
    one.follow()
    return one.pauses


def test_pauses_grow_while_nothing_works() -> None:
    found = pauses(0, 0, 0, 0)
    assert all(0.75 * 2**at <= pause <= 2**at for at, pause in enumerate(found)), found


def test_a_stream_that_has_worked_since_is_tried_again_soon() -> None:
    found = pauses(0, 0, 0, 1, 0, 3)
    assert [pause <= 1.0 for pause in found] == [True, False, False, True, False, True], found
