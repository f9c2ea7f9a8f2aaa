"""Google Secret Manager, through its client: Application Default Credentials, and the project that they name."""

from __future__ import annotations

import re

from flowctl.errors import AccessDenied, FlowctlError, TableError, TransientError
from flowctl.spec.secret_stores.store import READ_TIMEOUT, SecretStore

_HINT_CREDENTIALS = "Set GOOGLE_APPLICATION_CREDENTIALS, or run: gcloud auth application-default login"


class SecretManager(SecretStore):
    title = "Google Secret Manager"
    clients = ("google.cloud.secretmanager",)
    name_form = re.compile(
        r"(projects/(?P<project>[a-z0-9.:-]+)/(locations/(?P<location>[a-z0-9-]+)/)?secrets/)?(?P<id>[A-Za-z0-9_-]+)"
    )
    example = "projects/shop-prod/secrets/postgres"

    def __init__(self) -> None:
        import google.auth

        # The REST transport refreshes these itself; scopes are needed by keys of service accounts.
        scopes = ["https://www.googleapis.com/auth/cloud-platform"]
        self._credentials, self._project = google.auth.default(scopes=scopes)

    def read(self, name: str, version: str) -> str:
        from google.cloud import secretmanager

        parts = self.name_form.fullmatch(name)
        assert parts, "validate has checked it"
        project = parts["project"] or self._project
        if not project:
            what = f"the secret {name} does not name a project, and neither do the credentials"
            raise TableError(what, hint="Set GOOGLE_CLOUD_PROJECT, or write projects/PROJECT/secrets/NAME")
        location = parts["location"]
        options = {"api_endpoint": f"secretmanager.{location}.rep.googleapis.com"} if location else {}
        # gRPC's threads do not survive the processes that an engine forks.
        client = secretmanager.SecretManagerServiceClient(
            credentials=self._credentials, transport="rest", client_options=options
        )
        parent = f"projects/{project}" + (f"/locations/{location}" if location else "")
        path = f"{parent}/secrets/{parts['id']}/versions/{version or 'latest'}"
        with client:
            found = client.access_secret_version(name=path, retry=None, timeout=READ_TIMEOUT)
        return bytes(found.payload.data).decode()

    @classmethod
    def explain(cls, error: Exception, name: str) -> FlowctlError | None:
        import requests
        from google.api_core import exceptions
        from google.auth import exceptions as auth

        match error:
            case exceptions.NotFound():
                hint = "Check project, name and version"
                return TableError(f"{cls.title} has no secret {name}, or not in this version", hint=hint)
            case exceptions.Forbidden():
                hint = "Grant roles/secretmanager.secretAccessor on it to the identity of this run"
                return AccessDenied(f"{cls.title} refuses access to the secret {name}", hint=hint)
            case exceptions.Unauthorized():
                return AccessDenied(f"{cls.title} does not accept the credentials", hint=_HINT_CREDENTIALS)
            case exceptions.TooManyRequests() | exceptions.ServerError():
                return TransientError(f"{cls.title} is not available ({error.code})", hint="Try again later")
            case exceptions.GoogleAPICallError():
                # Also for a version that is disabled or destroyed.
                what = f"{cls.title} does not give the secret {name} ({error.code})"
                return TableError(what, hint="Check that this version is enabled")
            case auth.DefaultCredentialsError():
                return AccessDenied(f"there are no credentials for {cls.title}", hint=_HINT_CREDENTIALS)
            case requests.exceptions.SSLError():
                hint = "Set REQUESTS_CA_BUNDLE to the certificates of its authorities"
                return TableError(f"the certificate of {cls.title} is not trusted", hint=hint)
            case requests.exceptions.RequestException() | auth.TransportError():
                hint = "Check the network and run again"
                return TransientError(f"{cls.title} cannot be reached", hint=hint)
            case auth.RefreshError() if error.retryable:
                return TransientError("Google's token service is not available", hint="Try again later")
            case auth.GoogleAuthError():
                what = "the Google credentials have expired or are not valid"
                return AccessDenied(what, hint=_HINT_CREDENTIALS)
            case _:
                return None
