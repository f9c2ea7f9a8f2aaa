"""Recognizes when a store refused access: S3 through fsspec, deltalake, Hadoop and Sail, or a disk, each with its own
errors. The raw text (XML, request ids, signatures) is never shown; the reason is given in flowctl's own words."""

from __future__ import annotations

import re

from flowctl.errors import chain

HINT = "Renew the credentials or grant them the permission (`storage` in the spec, or the environment), then run again"
#: The store's error codes, matched anywhere in the text, and what they mean.
_CODES = {
    "ExpiredToken": "the credentials have expired",
    "RequestExpired": "the credentials have expired",
    "TokenRefreshRequired": "the credentials have expired",
    "InvalidToken": "the session token is not valid",
    "InvalidAccessKeyId": "the access key is unknown",
    "SignatureDoesNotMatch": "the secret key is wrong",
}
_EXPIRED = re.compile("(?i)(?:token|credentials?|session)[^.\n]{0,40} expired|expired (?:token|credentials?)")
_REFUSED = re.compile(
    r"\bAccessDenied|Access Denied|\b403 Forbidden|[Ss]tatus [Cc]ode:? 403|HTTP status 403|AllAccessDisabled"
    r"|PermissionDenied|AuthorizationFailure|InsufficientAccountPermissions"
)
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_LACKS = "these credentials lack the permission"


def refused_access(error: BaseException) -> str | None:
    """Why access was refused, in words; None if neither ``error`` nor one of its causes is a refusal."""
    links = list(chain(error))
    text = _COLOUR.sub("", "\n".join(map(str, links)))
    for link in links:
        if isinstance(link, PermissionError) and link.filename:
            return f"this user may not use {link.filename}"
    if reason := refusal_in(text):
        return reason
    return _LACKS if any(isinstance(link, PermissionError) for link in links) else None


def refusal_in(text: str) -> str | None:
    """As :func:`refused_access`, for a text. A database's own "permission denied" does not count."""
    for code, meaning in _CODES.items():
        if re.search(rf"\b{code}(?:Exception)?\b", text):
            return meaning
    if not _REFUSED.search(text):
        return None
    return _CODES["ExpiredToken"] if _EXPIRED.search(text) else _LACKS


def in_one_line(error: BaseException) -> str:
    """The error of a Rust library, which is a tree of causes, in one line: what it was doing, and the innermost
    cause."""
    lines = [line.strip(" \t↳") for line in _COLOUR.sub("", str(error)).splitlines() if line.strip(" \t↳")]
    return ": ".join(dict.fromkeys([*lines[:1], *lines[-1:]])) or type(error).__name__
