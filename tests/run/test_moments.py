"""What was read at a moment counts, however the moment ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from flowctl.errors import TableError, TransientError
from flowctl.run.streaming.loading import _may_end_early


@contextmanager
def lost_at_its_end(error: Exception) -> Iterator[Any]:
    yield "moment"
    raise error


def test_a_moment_whose_connection_is_lost_after_its_tables_were_read() -> None:
    done = []
    with _may_end_early(lost_at_its_end(TransientError("lost"))) as moment:
        done.append(moment)
    assert done == ["moment"]


def test_other_errors_of_a_moment_are_raised() -> None:
    with pytest.raises(TableError), _may_end_early(lost_at_its_end(TableError("broken"))):
        pass
    with pytest.raises(TransientError, match="inside"), _may_end_early(lost_at_its_end(TransientError("lost"))):
        raise TransientError("inside")
