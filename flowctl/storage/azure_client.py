"""adlfs with less patience. Imported by fsspec when a flow uses Azure."""

from __future__ import annotations

from adlfs import AzureBlobFileSystem

#: Seconds before the first attempt after a failure, about; two more follow after 3 and 5. By default the client waits
#: for a minute and a half, several times in one call, and a lease's renewal would come too late.
_FIRST_WAIT, _GROWTH = 0.5, 2


class AzureFileSystem(AzureBlobFileSystem):  # type: ignore[misc]
    def do_connect(self) -> None:
        super().do_connect()
        policy = self.service_client._config.retry_policy
        policy.initial_backoff = policy.random_jitter_range = _FIRST_WAIT
        policy.increment_base = _GROWTH
