"""Recognizes when a store refused access: S3, Google Cloud Storage and Azure through fsspec, deltalake, Hadoop and
Sail, or a disk, each with its own errors. The raw text (XML, request ids, signatures) is never shown; the reason is
given in flowctl's own words."""

from __future__ import annotations

import re

from flowctl.errors import chain

HINT = "Renew the credentials or grant them the permission (`storage` in the spec, or the environment), then run again"
_NONE_FOUND = "there are no credentials, neither in the spec nor in the environment"
#: Azure does not say which.
_REJECTED = "the account key or the token is wrong or has expired"
#: The store's error codes, matched anywhere in the text, and what they mean.
_CODES = {
    "ExpiredToken": "the credentials have expired",
    "RequestExpired": "the credentials have expired",
    "TokenRefreshRequired": "the credentials have expired",
    "InvalidToken": "the session token is not valid",
    "InvalidAccessKeyId": "the access key is unknown",
    "SignatureDoesNotMatch": "the secret key is wrong",
    "AuthenticationFailed": _REJECTED,
    "Server failed to authenticate the request": _REJECTED,
    "AADSTS7000215": "the client secret is wrong",
    "AADSTS7000222": "the client secret has expired",
    "AADSTS700016": "the tenant has no such application",
    "AADSTS90002": "the tenant is unknown",
    "DefaultAzureCredential failed to retrieve a token": _NONE_FOUND,
    "Your default credentials were not found": _NONE_FOUND,
    "invalid_grant": "the service account's key is not valid any more",
    "Invalid Credentials, 401": _REJECTED,
    "NoAuthenticationInformation": "it needs credentials, and there are none",
    "InvalidAuthenticationInfo": _REJECTED,
}
_EXPIRED = re.compile("(?i)(?:token|credentials?|session)[^.\n]{0,40} expired|expired (?:token|credentials?)")
_REFUSED = re.compile(
    r"\bAccessDenied|Access Denied|\b403 Forbidden|[Ss]tatus [Cc]ode:? 403|HTTP status 403|AllAccessDisabled"
    r"|does not have storage\.[\w.]+ access|PermissionDenied|AuthorizationFailure|InsufficientAccountPermissions"
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
