"""What holds for every store: what a reference gives, what each failure says, and that nothing else is shown."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest

from flowctl.errors import AccessDenied, FlowctlError, TableError, TransientError
from flowctl.redaction import REDACTOR
from tests.spec.secret_stores.places import Place, fail_to_read, read, start_again

SECRET = {"user": "etl_user", "password": "s3cret/välue", "port": 5432}
OLD = {"user": "etl_user", "password": "old-secret-value"}


def fail(place: Place, name: str, suffix: str = "") -> FlowctlError:
    return fail_to_read(place.refer(name, suffix), *map(str, SECRET.values()), *map(str, OLD.values()))


def test_a_whole_secret_a_field_and_an_older_version(place: Place) -> None:
    first, last = place.put("versions", json.dumps(OLD), json.dumps(SECRET))
    assert json.loads(read(place.refer("versions"))) == SECRET
    assert read(place.refer("versions", "#password")) == SECRET["password"]
    assert read(place.refer("versions", "#port")) == "5432"
    assert read(place.refer("versions", f"?version={first}#password")) == OLD["password"]
    assert json.loads(read(place.refer("versions", f"?version={last}"))) == SECRET


def test_what_is_read_is_redacted(place: Place) -> None:
    place.put("redacted", json.dumps(SECRET))
    text = f"it was {SECRET['password']}."
    assert REDACTOR.redact(text) == text
    read(place.refer("redacted", "#password"))
    assert REDACTOR.redact(text) == "it was ***."


def test_a_secret_is_read_once_by_many_threads(place: Place) -> None:
    place.put("once", json.dumps(SECRET))
    with ThreadPoolExecutor(8) as pool:
        found = set(
            pool.map(lambda number: read(place.refer("once", "#user" if number % 2 else "#password")), range(16))
        )
    assert found == {SECRET["user"], SECRET["password"]}
    place.put("once-more", json.dumps(SECRET))
    read(place.refer("once-more", "#user"))
    with place.refusing():  # a second request would fail
        assert read(place.refer("once-more", "#password")) == SECRET["password"]


def test_a_secret_that_does_not_exist(place: Place) -> None:
    error = fail(place, "not-there")
    assert type(error) is TableError and "has no secret" in error.message and "not-there" in error.message


def test_a_version_that_does_not_exist(place: Place) -> None:
    place.put("one-version", json.dumps(SECRET))
    error = fail(place, "one-version", "?version=99")
    assert type(error) is TableError and "version" in error.message


def test_a_field_that_does_not_exist(place: Place) -> None:
    place.put("fields", json.dumps(SECRET))
    assert fail(place, "fields", "#pasword").hint == "Did you mean `password`?"
    error = fail(place, "fields", "#quite_different")
    assert error.exit_code == 4 and error.hint == "Check the names of its fields"


def test_a_secret_that_is_refused_can_be_read_once_it_is_allowed(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.put("denied", json.dumps(SECRET))
    with place.refusing() as variables, monkeypatch.context() as changed:
        for name, value in variables.items():
            changed.setenv(name, value)
        error = fail(place, "denied")
    assert type(error) is AccessDenied and "refuses access" in error.message
    start_again(monkeypatch)
    assert read(place.refer("denied", "#user")) == SECRET["user"]


def test_a_store_that_cannot_be_reached_is_tried_again(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.put("later", json.dumps(SECRET))
    with monkeypatch.context() as changed:
        for name, value in place.nowhere().items():
            changed.setenv(name, value)
        error = fail(place, "later")
    assert type(error) is TransientError and "cannot be reached" in error.message
