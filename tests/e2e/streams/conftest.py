"""The sources of streams, as fixtures: the URL of an empty database of each kind whose changes can be captured."""

from __future__ import annotations

import pytest


@pytest.fixture(params=["postgres", pytest.param("mysql", marks=pytest.mark.full)])
def source_url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(f"{request.param}_database"))


@pytest.fixture(params=[pytest.param("postgres", marks=pytest.mark.full), "mysql"])
def each_source_url(request: pytest.FixtureRequest) -> str:
    """As ``source_url``, of which every run of the tests has the other kind."""
    return str(request.getfixturevalue(f"{request.param}_database"))
