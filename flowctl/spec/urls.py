"""What is wrong with the form of a URL, without repeating any part of it: any part may belong to a password."""

from __future__ import annotations

import re

#: Stands for a secret reference in a URL; the value is percent-encoded there, and may be a port.
PLACEHOLDER = "1"
_PERCENT = re.compile(r"%(?![0-9A-Fa-f]{2})")
_PORT = re.compile(r"\d{0,5}")
#: As Spark Connect's clients accept them: only `/;name=value` pairs after host and port.
_CONNECT_REST = re.compile(r"/?(;[^;=]+=[^;]*)*")


def flaw(url: str) -> str:
    """What is wrong with ``scheme://user:password@host:port/path?query``; empty if it can be parsed."""
    _, found, rest = url.partition("://")
    if not found:
        return "there is no :// in it"
    if re.search(r"[\s\x00-\x1f\x7f]", url):
        return "there is white space in it"
    if _PERCENT.search(url):
        return "a % in it is not followed by two hexadecimal digits (write %25 for the character itself)"
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    behind = rest[len(authority) :]
    userinfo, _, address = authority.rpartition("@")
    if "@" in userinfo:
        return "there is more than one @ before the host (write %40 for the character itself)"
    if not userinfo and ":" in authority and "@" in re.split(r"\?.*=", behind, maxsplit=1)[0]:
        return "the password contains one of / ? # (write %2F, %3F or %23 for the character itself)"
    return next(filter(None, map(_flaw_of_address, address.split(","))), "")


def flaw_of_spark(url: str) -> str:
    """For ``spark.url``; forms without a host, such as ``local[4]``, are accepted as they are."""
    if url.startswith("sc://"):
        authority = re.split(r"[/;?#]", url.removeprefix("sc://"), maxsplit=1)[0]
        if not authority.rpartition("@")[2]:
            return "there is no host in it"
        if not _CONNECT_REST.fullmatch(url.removeprefix("sc://")[len(authority) :]):
            return "only /;name=value may follow host and port"
        return flaw(f"sc://{authority}")
    if url.startswith("k8s://"):
        server = url.removeprefix("k8s://")
        return flaw(server if "://" in server else f"https://{server}")
    return flaw(url) if url.startswith("spark://") else ""


def flaw_of_endpoint(url: str) -> str:
    """For an object store's own URL."""
    if not url.startswith(("http://", "https://")):
        return "it does not begin with http:// or https://"
    return flaw(url) or ("" if re.split(r"[/?#]", url.partition("://")[2])[0] else "there is no host in it")


def _flaw_of_address(address: str) -> str:
    """For ``host``, ``host:port`` or ``[IPv6]:port``."""
    if address.startswith("["):
        host, closed, port = address.partition("]")
        if not closed or not re.fullmatch(r"\[[0-9A-Fa-f:.%]+", host) or (port and not port.startswith(":")):
            return "the address in brackets is not valid"
        port = port.removeprefix(":")
    else:
        host, _, port = address.partition(":")
        if re.search(r"[\[\]<>\"{}|\\^`]", host):
            return "the host contains a character that host names cannot have"
    if not _PORT.fullmatch(port) or (port and not 0 < int(port) < 65536):
        return "the port is not a number from 1 to 65535 (a : or @ of the password is written %3A or %40)"
    return ""
