"""The redactor: it knows every resolved secret, and everything shown or written passes through it.

Errors and the prose of a plan are redacted when they are created, before they can be wrapped, escaped or stored;
everything printed is redacted once more on output. Values that a run computes with (positions, statements, identities)
are not redacted: they are built without secrets.
"""

from __future__ import annotations

import base64
import json
import os
import re
import threading
from collections.abc import Collection, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

#: Shorter values occur everywhere, inside numbers and words: hiding them would leave nothing readable.
_SHORTEST = 4
#: For base64, where a short fragment reveals little.
_SHORTEST_BASE64 = 8
_SHORTEST_VARIABLE = 8
_HIDDEN = "***"
#: The password of a URL up to the last ``@`` that may end it, or of libpq's ``key=value`` form.
_PASSWORD_IN = re.compile(r"://[^:/?#@\s]*:(\S*)@|\bpassword=([^&\s]+)")
#: Where a URL is split, even if its password should have been percent-encoded.
_DELIMITERS = re.compile(r"[/?#@:&]")
#: Secrets that libraries read themselves, without a reference in the spec.
_VARIABLES = (
    "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN", "AZURE_STORAGE_KEY", "AZURE_STORAGE_ACCOUNT_KEY",
    "AZURE_STORAGE_SAS_TOKEN", "AZURE_CLIENT_SECRET", "PGPASSWORD", "VAULT_TOKEN", "VAULT_SECRET_ID",
    "SPARK_CONNECT_AUTHENTICATE_TOKEN",
)  # fmt: skip


class Redactor:
    """Replaces every registered secret with ``***``: verbatim, in any percent-encoding, decoded, as escaped by JSON,
    SQL, HTML and Python, and in base64. Thread-safe."""

    def __init__(self) -> None:
        self._forms: dict[str, str] = {}
        self._pattern: re.Pattern[str] | None = None
        self._lock = threading.Lock()

    def register(self, secret: str) -> None:
        """Values of fewer than four characters are not hidden. If the secret is a URL, its password and the password's
        parts are hidden too: drivers split malformed URLs in unexpected places."""
        plain = {form for text in (secret, *_passwords(secret)) for form in (text, unquote(text), *text.splitlines())}
        forms = {text: _any_form(text) for text in plain if len(text) >= _SHORTEST}
        forms |= {text: re.escape(text) for text in _base64_forms(plain)}
        with self._lock:
            if forms.keys() <= self._forms.keys():
                return
            self._forms |= forms
            self._pattern = None

    def redact(self, text: str) -> str:
        pattern = self._pattern or self._compile()
        return pattern.sub(_HIDDEN, text) if pattern else text

    def _compile(self) -> re.Pattern[str] | None:
        """Not in :meth:`register`: a hundred secrets in a row would compile a pattern a hundred times, for seconds."""
        with self._lock:
            if self._forms and self._pattern is None:
                longest_first = sorted(self._forms, key=len, reverse=True)
                self._pattern = re.compile("|".join(self._forms[text] for text in longest_first))
            return self._pattern

    def redact_all(self, document: Any, keep: Collection[str] = ()) -> Any:
        """A copy of a JSON document with every string redacted, except those below the keys in ``keep``."""
        match document:
            case str():
                return self.redact(document)
            case Mapping():
                return {key: value if key in keep else self.redact_all(value, keep) for key, value in document.items()}
            case list() | tuple():
                return [self.redact_all(item, keep) for item in document]
            case _:
                return document


#: The process's redactor.
REDACTOR = Redactor()


def register_environment() -> None:
    """Registers the secrets that libraries read from the environment themselves. Short ones are skipped: they are test
    values, such as ``test``, and hiding them would make much of the output unreadable."""
    for value in filter(None, map(os.environ.get, _VARIABLES)):
        if len(value) >= _SHORTEST_VARIABLE:
            REDACTOR.register(value)


def without_passwords(text: str) -> str:
    """``text`` with ``***`` for the passwords in it, if it is a URL or has libpq's form."""
    return _PASSWORD_IN.sub(lambda found: found[0].replace(found[1] or found[2] or "\0", _HIDDEN), text)


def _passwords(secret: str) -> Iterator[str]:
    for found in _PASSWORD_IN.finditer(secret):
        password = found[1] or found[2] or ""
        yield password
        yield from (part for part in _DELIMITERS.split(password) if part)


#: As in :func:`html.escape`, whose module takes longer to import than all of this one.
_HTML = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"}


def _any_form(text: str) -> str:
    """A pattern for ``text`` with each of its characters in any encoding that leaves letters and digits alone."""
    return "".join(re.escape(char) if char.isascii() and char.isalnum() else _any_of(char) for char in text)


def _any_of(char: str) -> str:
    encoded = "".join(f"%(?:25)?{_hex(f'{byte:02x}')}" for byte in char.encode("utf-8", "surrogatepass"))
    escaped = json.dumps(char)[1:-1]
    if escaped.startswith("\\u"):
        escapes = "".join(rf"\\u{_hex(unit)}" for unit in escaped.split("\\u")[1:])
    else:
        escapes = re.escape(escaped)
    others = {repr(char)[1:-1], _HTML.get(char, char), f"\\{char}", char, *(["+"] if char == " " else [])}
    others |= {char * 2} if char in "'\"`$" else set()
    longest_first = sorted(map(re.escape, others), key=len, reverse=True)
    return f"(?:{'|'.join([encoded, escapes, *longest_first])})"


def _hex(digits: str) -> str:
    return "".join(f"[{digit.lower()}{digit.upper()}]" if digit.isalpha() else digit for digit in digits)


def _base64_forms(texts: Collection[str]) -> Iterator[str]:
    """The part of each text that appears in base64 wherever the text begins in the encoded data, as in
    ``base64(user:password)``: the characters that do not depend on neighbouring bytes."""
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        for before in range(3):
            whole = base64.b64encode(b"\0" * before + data).decode()
            first, bits = (before * 8 + 5) // 6, (before + len(data)) * 8
            inner = whole[first : bits // 6]
            if len(inner) >= _SHORTEST_BASE64:
                yield inner
                yield inner.translate(str.maketrans("+/", "-_"))
