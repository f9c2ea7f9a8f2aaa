"""Azure Blob Storage and Data Lake Storage, with the credentials of the environment."""

from __future__ import annotations

from typing import ClassVar

from flowctl.storage.store import CloudStore


class AzureStore(CloudStore):
    schemes: ClassVar = ("abfss", "abfs", "az")
    environment: ClassVar = "AZURE_STORAGE_ACCOUNT_NAME and what else adlfs reads"


STORE = AzureStore()
