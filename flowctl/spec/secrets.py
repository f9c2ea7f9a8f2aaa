"""Secrets: references in the spec, resolved only when something is opened.

``${secret:env:NAME}``, ``${secret:file:PATH}`` and ``${secret:STORE:NAME?version=VERSION#FIELD}`` replace a whole value
or a part of one. Every resolved value is registered with the redactor in the same step, so no value can be used before
it can be redacted.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from flowctl.diagnostics import Mark
from flowctl.errors import FlowctlError, TableError
from flowctl.redaction import REDACTOR
from flowctl.spec.secret_stores import STORES
from flowctl.spec.secret_stores.reading import READER
from flowctl.spec.spec import SecretRef, SecretText
from flowctl.spec.suggest import nearest

_REFERENCE = re.compile(r"\$\$\{|\$\{secret:([^:}]{0,100}):([^}]{0,1000})\}")

#: The name of a secret in a store: each store has a form for the part before `?` and `#`.
_IN_STORE = re.compile(r"([^?#]+)(?:\?version=([\w.-]{1,64}))?(?:#(.+))?")


def parse_secrets(text: str, mark: Mark | None = None) -> str | SecretText:
    """``text`` with its references as values, which keep ``mark``; plain text (``$${`` becomes ``${``) if it has
    none."""
    parts: list[str | SecretRef] = []
    literal, start = "", 0
    for match in _REFERENCE.finditer(text):
        literal += text[start : match.start()]
        start = match.end()
        if match[0] == "$${":
            literal += "${"
            continue
        if literal:
            parts.append(literal)
        parts.append(SecretRef(match[1], match[2], mark))
        literal = ""
    literal += text[start:]
    if not parts:
        return literal
    return SecretText((*parts, literal) if literal else tuple(parts))


def secret_references(text: str) -> list[SecretRef]:
    """The references in ``text``, in order."""
    return [SecretRef(match[1], match[2]) for match in _REFERENCE.finditer(text) if match[0] != "$${"]


def without_references(text: str, instead: str) -> str:
    """``text`` with each reference replaced by ``instead``."""
    return _REFERENCE.sub(lambda match: match[0] if match[0] == "$${" else instead, text)


def is_one_reference(text: str) -> bool:
    """Whether ``text`` consists of one reference, so that nothing is known about its value."""
    return _REFERENCE.fullmatch(text) is not None and text != "$${"


class Revealed(str):
    """Text with resolved secrets in it: marks it for code that might store it."""


def reveal(value: Any) -> Any:
    """``value`` with its references resolved, a text that had some as :class:`Revealed`; lists and maps are walked,
    everything else is returned unchanged. Inside a URL each value is percent-encoded. Raises :class:`TableError` if a
    secret cannot be read, :class:`TransientError` if its store does not answer."""
    match value:
        case SecretText(parts):
            in_url = isinstance(parts[0], str) and "://" in parts[0]
            return Revealed("".join(part if isinstance(part, str) else _resolve(part, in_url=in_url) for part in parts))
        case Mapping():
            return {key: reveal(item) for key, item in value.items()}
        case list() | tuple():
            return [reveal(item) for item in value]
        case _:
            return value


def password_in_clear(text: str) -> bool:
    """Whether ``text`` is a URL whose password is not a reference. User names may be in plain text."""
    if "://" not in text:
        return False
    shown = _REFERENCE.sub("", text)
    rest = shown.partition("://")[2]
    authority = re.split(r"[/?#]", rest, maxsplit=1)[0]
    if "@" in authority:
        userinfo = authority.rpartition("@")[0]
        if userinfo.partition(":")[2]:
            return True
    elif "@" in rest and re.search(r":\d*[^\d]", authority):  # not a port, but a password up to its / or ? or #
        return True
    return bool(re.search(r"[?&;](password|passwd|pwd|secret|token|sig)=[^&;]", shown, re.IGNORECASE))


def _from_environment(name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        hint = f"Set it before the run: export {name}=…"
        raise TableError(f"the environment variable {name} that a secret refers to is not set", hint=hint)
    return value


def _from_file(path: str) -> str:
    try:
        return _without_line_break(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        message = f"cannot read the secret file {path}: {reason}"
        raise TableError(message, hint="Check the path and its permissions") from error


def _without_line_break(text: str) -> str:
    """Editors and ``echo`` add a final one, Kubernetes does not."""
    return text.removesuffix("\n").removesuffix("\r")


#: From a reference's name to the value, exactly as it is used.
_LOCAL: dict[str, Callable[[str], str]] = {"env": _from_environment, "file": _from_file}
PROVIDERS = (*_LOCAL, *STORES)


def flaw_of_reference(reference: SecretRef) -> str:
    """What the name should look like if it has not the form of its provider's names; otherwise empty."""
    if not (store := STORES.get(reference.provider)):
        return ""
    parts = _IN_STORE.fullmatch(reference.name)
    if parts and store.name_form.fullmatch(parts[1]):
        return ""
    return f"${{secret:{reference.provider}:{store.example}#FIELD}}"


def _resolve(reference: SecretRef, *, in_url: bool) -> str:
    try:
        value = _read(reference)
    except FlowctlError as error:
        error.mark = error.mark or reference.mark
        raise
    REDACTOR.register(value)
    return quote(value, safe="") if in_url else value


def _read(reference: SecretRef) -> str:
    if local := _LOCAL.get(reference.provider):
        return local(reference.name)
    parts = _IN_STORE.fullmatch(reference.name)
    assert parts, "validate has checked it"
    name, version, field = parts.groups(default="")
    text = READER.read(reference.provider, name, version)
    return _field(text, field, f"the secret {name}") if field else _without_line_break(text)


def _field(text: str, field: str, secret: str) -> str:
    """A field of a JSON object: text as it is, everything else as JSON. Messages contain nothing of ``text``."""
    try:
        document = json.loads(text)
    except (ValueError, RecursionError):
        document = None
    if not isinstance(document, dict):
        hint = f"Remove `#{field}` to use all of it, or store a JSON object"
        raise TableError(f"{secret} is not a JSON object, so it has no field {field}", hint=hint)
    value = document.get(field)
    if value is None:
        hint = nearest(field, document, "Check the names of its fields")  # which are not shown: some are secrets
        raise TableError(f"{secret} has no field {field}", hint=hint)
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
