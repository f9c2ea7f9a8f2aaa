"""Projects and locations of Google, vaults and clouds of Azure; their credentials, and answers other than a secret."""

from __future__ import annotations

import json

import pytest

from flowctl.errors import AccessDenied, TableError, TransientError
from tests.services import clouds
from tests.services.clouds import Clouds
from tests.spec.secret_stores.places import Cloud, Place, fail_to_read, read

google = pytest.mark.parametrize("opened", ["gcp"], indirect=True)
pytestmark = pytest.mark.usefixtures("server")
azure = pytest.mark.parametrize("opened", ["azure"], indirect=True)
both = pytest.mark.parametrize("opened", ["gcp", "azure"], indirect=True)


@pytest.fixture
def server(place: Place) -> Clouds:
    assert isinstance(place, Cloud)
    place.put("pg", "s3cret-value")
    return place.server


@google
def test_projects_and_locations(server: Clouds) -> None:
    server.secrets["projects/other/secrets/pg"] = [b"s3cret-of-other"]
    server.secrets["projects/other/locations/europe-west3/secrets/pg"] = [b"s3cret-of-region"]
    assert read("gcp:pg") == "s3cret-value"
    assert read("gcp:projects/other/secrets/pg?version=1") == "s3cret-of-other"
    assert read("gcp:projects/other/locations/europe-west3/secrets/pg") == "s3cret-of-region"


@google
def test_credentials_without_a_project(server: Clouds, monkeypatch: pytest.MonkeyPatch) -> None:
    key = json.loads((server.folder / "google.json").read_text())
    (server.folder / "no-project.json").write_text(json.dumps({**key, "project_id": None}))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(server.folder / "no-project.json"))
    error = fail_to_read("gcp:pg")
    assert type(error) is TableError and "GOOGLE_CLOUD_PROJECT" in error.hint
    assert read(f"gcp:projects/{clouds.PROJECT}/secrets/pg") == "s3cret-value"


@google
def test_credentials_of_google_that_are_missing_or_not_accepted(
    server: Clouds, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = json.loads((server.folder / "google.json").read_text())
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", "/not/there.json")
    error = fail_to_read("gcp:pg")
    assert type(error) is AccessDenied and "there are no credentials" in error.message
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(server.folder / "stranger" / "google.json"))
    (server.folder / "stranger").mkdir()
    clouds.make_service_account(server.folder / "stranger")  # with a key that the service does not know
    error = fail_to_read("gcp:pg", key["private_key"])
    assert type(error) is AccessDenied and "does not accept the credentials" in error.message


@azure
def test_credentials_of_azure_that_are_not_accepted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_CLIENT_SECRET", "another-client-secret")
    error = fail_to_read(f"azure:{clouds.VAULT}/pg", "another-client-secret")
    assert type(error) is AccessDenied and "not accepted" in error.message and "az login" in error.hint


@both
def test_a_final_line_break_is_not_part_of_the_secret(place: Place) -> None:
    place.put("echoed", "s3cret-value\n")
    assert read(place.refer("echoed")) == "s3cret-value"


@azure
def test_a_vault_may_be_written_with_its_whole_host() -> None:
    assert read(f"azure:{clouds.VAULT}.vault.azure.net/pg") == "s3cret-value"


@both
def test_an_authority_that_is_not_trusted(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REQUESTS_CA_BUNDLE")
    error = fail_to_read(place.refer("pg"))
    assert type(error) is TableError and "not trusted" in error.message and "REQUESTS_CA_BUNDLE" in error.hint


@both
@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_service_that_is_not_available_is_tried_again(
    place: Place, server: Clouds, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    monkeypatch.setattr(server, "failing", status)
    error = fail_to_read(place.refer("pg"))
    assert type(error) is TransientError and str(status) in error.message
    monkeypatch.setattr(server, "failing", 0)
    assert read(place.refer("pg")) == "s3cret-value"


@both
def test_a_version_that_is_disabled(place: Place, server: Clouds, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "failing", 400)
    error = fail_to_read(place.refer("pg"))
    assert type(error) is TableError and "does not give the secret" in error.message


@azure
def test_the_client_prints_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AZURE_CLIENT_SECRET", "another-client-secret")
    fail_to_read(place.refer("pg"))
    assert capfd.readouterr() == ("", "")
