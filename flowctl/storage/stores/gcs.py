"""Google Cloud Storage, with the credentials of the environment."""

from __future__ import annotations

from typing import ClassVar

from flowctl.storage.store import CloudStore


class GoogleStore(CloudStore):
    schemes: ClassVar = ("gs", "gcs")
    environment: ClassVar = "GOOGLE_APPLICATION_CREDENTIALS"


STORE = GoogleStore()
