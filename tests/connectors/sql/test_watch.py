"""The watching of connections, which no connection can end for the others."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from flowctl.connectors.mysql.client import client as mysql_client
from flowctl.connectors.postgres.client import _line
from flowctl.connectors.postgres.client import client as postgres_client
from flowctl.connectors.sql import timeouts, watch
from flowctl.connectors.sql.watch import Line, Watched, watched


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timeouts, "SILENCE", 0.2)


@pytest.fixture
def ours() -> Iterator[socket.socket]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.settimeout(20)
        yield ours


def silent(server: str, ours: socket.socket) -> Line:
    """A connection that waits for a server that does not answer."""
    return Line(server, is_busy=lambda: True, cancel=lambda: None, fileno=ours.fileno, answers=lambda: False)


def fails() -> Any:
    raise RuntimeError("the driver has changed")


@pytest.mark.parametrize("part", ["is_busy", "answers", "fileno"])
def test_one_that_cannot_be_watched_leaves_the_others(
    ours: socket.socket, part: str, caplog: pytest.LogCaptureFixture
) -> None:
    broken = replace(silent("broken", ours), **{part: fails})
    with caplog.at_level(logging.WARNING, "flowctl.watch"), watched(broken) as first:
        time.sleep(1)
        with watched(silent("healthy", ours)) as second:
            assert ours.recv(1) == b""  # as after a lost connection
    assert second.given_up and (first.given_up != "") == (part == "fileno")
    (logged,) = caplog.messages
    assert "RuntimeError: the driver has changed" in logged


def test_a_thread_that_has_ended_is_started_again(ours: socket.socket, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = threading.Thread(target=int)
    ended.start()
    ended.join()
    monkeypatch.setattr(watch._WATCH, "_thread", ended)
    with watched(silent("healthy", ours)):
        assert ours.recv(1) == b""


def test_a_closed_connection_is_not_cut(postgres_database: str, mysql_database: str) -> None:
    with postgres_client({"url": postgres_database}).connect() as postgres:
        line = _line(postgres, "")
        assert line.fileno() == postgres.fileno()
        postgres.close()
        assert line.fileno() is None
        Watched(line).cut()
    place = mysql_client({"url": mysql_database})
    with place.connect() as mysql:
        line = place._line(mysql)
        assert line.fileno() == mysql.driver._sock.fileno()
        mysql.driver._force_close()
        assert line.fileno() is None
        Watched(line).cut()
