"""gcsfs with less patience, and with exact credentials. Imported by fsspec when a flow uses Google Cloud Storage."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from aiohttp import ClientTimeout
from gcsfs.core import GCSFileSystem
from gcsfs.retry import retry_request
from google.oauth2.service_account import Credentials

from flowctl.errors import TableError

#: Of each request: waits of 1, 2 and 4 seconds, and a little more. By default they are half a minute in all, several
#: times in one call, and a lease's renewal would come too late.
_TRIES = 4
_SCOPES = ("https://www.googleapis.com/auth/devstorage.read_write",)
#: What gcsfs finds by itself.
_KINDS = ("anon", "google_default")


class GoogleFileSystem(GCSFileSystem):  # type: ignore[misc]
    """``token``: ``anon``, ``google_default``, the path of a service account's key file, or its content parsed.
    ``connect``: timeout for connecting, ``silence``: without receiving a byte, in seconds."""

    def __init__(self, *args: Any, token: Any, connect: float, silence: float, **options: Any) -> None:
        timeout = ClientTimeout(sock_connect=connect, sock_read=silence)
        super().__init__(*args, token=_credentials(token), requests_timeout=timeout, **options)

    _request = retry_request(retries=_TRIES)(GCSFileSystem._request.__wrapped__)


def _credentials(token: Any) -> Any:
    """gcsfs would take a damaged key for credentials of another kind, and send the path of a missing file to Google."""
    if token in _KINDS:
        return token
    try:
        if isinstance(token, Mapping):
            return Credentials.from_service_account_info(token, scopes=_SCOPES)
        return Credentials.from_service_account_file(token, scopes=_SCOPES)
    except OSError as error:
        what = f"the service account's key file {token} cannot be read: {error.strerror}"
        raise TableError(what, hint="Correct `service_account_file`, or let this user read it") from error
    except ValueError as error:
        what = "the service account's key for gs:// is damaged or not whole"
        raise TableError(what, hint="Create a new key, and put the whole file where the key is kept") from error
