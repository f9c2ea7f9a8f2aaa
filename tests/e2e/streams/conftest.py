"""The sources of streams, as fixtures."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["postgres", "mysql"])
def source_url(request: pytest.FixtureRequest) -> str:
    """The URL of an empty database of each kind whose changes can be captured."""
    return str(request.getfixturevalue(f"{request.param}_database"))
