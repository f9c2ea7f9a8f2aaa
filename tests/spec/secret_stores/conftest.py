"""One place of each kind, and a process that has read nothing yet."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.spec.secret_stores.places import Place, open_place, start_again

VAULTS = ["vault", pytest.param("vault-real", marks=[pytest.mark.server, pytest.mark.full])]
KINDS = [pytest.param("aws", marks=pytest.mark.server), "gcp", "azure", *VAULTS]


@pytest.fixture(scope="module", params=KINDS)
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with open_place(request.param, tmp_path_factory.mktemp(request.param)) as place:
        yield place


@pytest.fixture
def place(opened: Place, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A test in a module of one store says which by its ``opened``."""
    start_again(monkeypatch)
    for name, value in opened.environment().items():
        monkeypatch.setenv(name, value)
    return opened
