"""Where a database server is, by the options of a connection: a URL, or its parts. Nothing here resolves a secret."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit


def database_place(options: Mapping[str, Any], default_port: int) -> tuple[str, str] | None:
    """``host:port`` and the database; None if a secret is in an unexpected part of the URL: only its provider knows."""
    try:
        url = urlsplit(str(options.get("url", "")))
        host = options.get("host") or url.hostname or "localhost"
        port = options.get("port") or url.port or default_port
    except ValueError:
        return None
    return f"{str(host).lower()}:{port}", str(options.get("database") or url.path.strip("/"))


def named_places(options: Mapping[str, str], default_port: int) -> list[str]:
    """See :attr:`flowctl.connectors.base.Capabilities.places`."""
    try:
        url = urlsplit(options.get("url", ""))
        if url.hostname:
            return [f"{url.hostname}:{url.port or default_port}"]
    except ValueError:
        pass
    return [f"{options['host']}:{options.get('port', default_port)}"] if "host" in options else []
