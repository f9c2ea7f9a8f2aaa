"""How a connection is encrypted.

A client makes one context for all of its connections: to load the certificates of every authority, as the driver does
for each connection that it opens, takes ten times as long as the rest of the connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from flowctl.errors import TableError

if TYPE_CHECKING:
    import ssl


def context(sslmode: str, files: Mapping[str, str]) -> ssl.SSLContext | None:
    """None: no TLS. ``files`` are the connection's `ssl_ca`, `ssl_cert` and `ssl_key`."""
    if sslmode == "disable":
        return None
    import ssl

    is_verified = sslmode in ("verify-ca", "verify-full")
    try:
        if is_verified:
            made = ssl.create_default_context(cafile=files.get("ssl_ca"))
        else:
            made = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            if authority := files.get("ssl_ca"):
                made.load_verify_locations(authority)  # so that a wrong path is noticed
        made.check_hostname = sslmode == "verify-full"
        if not is_verified:
            made.verify_mode = ssl.CERT_NONE
        if "ssl_cert" in files:
            made.load_cert_chain(files["ssl_cert"], files.get("ssl_key"))
    except (OSError, ssl.SSLError) as error:
        raise TableError(
            f"the TLS files of the connection cannot be read: {error}", hint="Check ssl_ca, ssl_cert and ssl_key"
        ) from error
    return made


def is_optional(sslmode: str, files: Mapping[str, str]) -> bool:
    """Whether the connection goes on without TLS if the server has none."""
    return sslmode == "prefer" and not files
