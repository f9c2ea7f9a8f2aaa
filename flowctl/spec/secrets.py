"""Secrets: references in the spec, resolved only when something is opened.

``${secret:env:NAME}``, ``${secret:file:PATH}`` and ``${secret:STORE:NAME?version=VERSION#FIELD}`` replace a whole value
or a part of one. Every resolved value is registered with the redactor in the same step, so no value can be used before
it can be redacted. So are secrets that the command line or the environment gives inside a connection: they become
:class:`Masked` text.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, assert_never
from urllib.parse import quote

from flowctl.diagnostics import Mark
from flowctl.errors import FlowctlError, TableError
from flowctl.redaction import REDACTOR
from flowctl.spec.secret_stores import STORES
from flowctl.spec.secret_stores.reading import READER
from flowctl.spec.secret_text import InlineSecret, SecretRef, SecretText
from flowctl.spec.suggest import nearest

_REFERENCE = re.compile(r"\$\$\{|\$\{secret:([^:}]{0,100}):([^}]{0,1000})\}")
#: Driver options that are secrets, even if the schema does not list them.
_SECRET_OPTION = re.compile(r"(?i)(^|[._])(ssl)?(password|passwd|secret|token)$")
#: Parameters of a URL that are secrets, each with its value.
_SECRET_PARAMETER = re.compile(r"(?i)[?&;](?:(?:ssl)?password|passwd|pwd|secret|token|sig)=([^&;]+)")
#: Stands for a reference where the text around it is searched; no argument and no variable can contain it.
_HOLE = "\0"

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


def has_stray_opening(text: str) -> bool:
    """Whether ``text`` has a ``${`` that begins no reference and is not marked as literal (``$${``)."""
    return "${" in _REFERENCE.sub(_HOLE, text)


def is_one_reference(text: str) -> bool:
    """Whether ``text`` consists of one reference, so that nothing is known about its value."""
    return _REFERENCE.fullmatch(text) is not None and text != "$${"


class Revealed(str):
    """Text with resolved secrets in it: marks it for code that might store it."""


class Masked(str):
    """Text that was given with secrets in it, as it is shown, compared and hashed: with ``***`` in their place.
    ``hidden`` contains them."""

    hidden: SecretText

    @classmethod
    def of(cls, parts: Iterable[str | SecretRef | InlineSecret]) -> Masked:
        hidden = SecretText(tuple(parts))
        masked = cls(hidden)
        masked.hidden = hidden
        return masked


def mask(text: str) -> str:
    """``text`` as one secret, known to the redactor from now on; unchanged if it has references instead."""
    if not text or secret_references(text):
        return text
    REDACTOR.register(text)
    return Masked.of([InlineSecret(text)])


def mask_passwords(text: str) -> str:
    """If ``text`` is a URL with passwords that are not references, the same with each of them masked, and known to the
    redactor from now on."""
    parsed = parse_secrets(text)
    parts = parsed.parts if isinstance(parsed, SecretText) else (parsed,)
    references = iter([part for part in parts if not isinstance(part, str)])
    shown = "".join(part if isinstance(part, str) else _HOLE for part in parts)
    found: list[str | SecretRef | InlineSecret] = []
    end = 0
    for start, stop in [*_password_spans(shown), (len(shown), len(shown))]:
        if start < end:  # a parameter inside the password
            continue
        for piece, is_secret in ((shown[end:start], False), (shown[start:stop], True)):
            for literal in re.split(f"({_HOLE})", piece):
                if literal == _HOLE:
                    found.append(next(references))
                elif literal and is_secret:
                    REDACTOR.register(literal)
                    found.append(InlineSecret(literal))
                elif literal:
                    found.append(literal)
        end = stop
    return Masked.of(found) if any(isinstance(part, InlineSecret) for part in found) else text


def _password_spans(url: str) -> list[tuple[int, int]]:
    """Where the passwords of a URL begin and end, in order."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return []
    spans = [match.span(1) for match in _SECRET_PARAMETER.finditer(url)]
    userinfo, at, _ = _authority(rest).rpartition("@")
    user, colon, password = userinfo.partition(":")
    if at and colon and password:
        start = len(scheme) + len(separator) + len(user) + len(colon)
        spans.insert(0, (start, start + len(password)))
    return spans


def _authority(rest: str) -> str:
    """The user, the password, the host and the port, of what follows the scheme of a URL."""
    return re.split(r"[/?#]", rest, maxsplit=1)[0]


def names_a_secret(path: str, properties: Mapping[str, Any]) -> bool:
    """Whether the value at a dotted path of a connection with these ``properties`` in its schema is a secret."""
    return bool(properties.get(path, {}).get("writeOnly") or _SECRET_OPTION.search(path))


def reveal(value: Any) -> Any:
    """``value`` with its references resolved, a text that had some as :class:`Revealed`; lists and maps are walked,
    everything else is returned unchanged. Inside a URL each value is percent-encoded. Raises :class:`TableError` if a
    secret cannot be read, :class:`TransientError` if its store does not answer."""
    match value:
        case SecretText(parts):
            in_url = isinstance(parts[0], str) and "://" in parts[0]
            return Revealed("".join(_reveal_part(part, in_url=in_url) for part in parts))
        case Mapping():
            return {key: reveal(item) for key, item in value.items()}
        case list() | tuple():
            return [reveal(item) for item in value]
        case _:
            return value


def password_in_clear(text: str) -> bool:
    """Whether ``text`` is a URL whose password is not a reference. User names may be in plain text."""
    shown = _REFERENCE.sub("", text)
    return bool(_password_spans(shown)) or has_unclear_password(text)


def has_unclear_password(text: str) -> bool:
    """Whether ``text`` is a URL whose password contains ``/``, ``?`` or ``#``: nobody can tell where it ends."""
    _, _, rest = _REFERENCE.sub("", text).partition("://")
    authority = _authority(rest)
    is_port = re.search(r":\d*[^\d]", authority) is None
    return "@" in rest and "@" not in authority and not is_port


def _from_environment(name: str) -> str:
    value = os.environ.get(name)
    if value is None:
        hint = f"Set it before the run: export {name}=…"
        raise TableError(f"the environment variable {name} that a secret refers to is not set", hint=hint)
    return _not_empty(value, f"the environment variable {name}")


def _from_file(path: str) -> str:
    try:
        value = _without_line_break(Path(path).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        message = f"cannot read the secret file {path}: {reason}"
        raise TableError(message, hint="Check the path and its permissions") from error
    return _not_empty(value, f"the secret file {path}")


def _not_empty(value: str, place: str) -> str:
    """A server would only say that it got no password."""
    if not value:
        hint = "Give it a value, or remove the reference"
        raise TableError(f"{place} that a secret refers to is empty", hint=hint)
    return value


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


def _reveal_part(part: str | SecretRef | InlineSecret, *, in_url: bool) -> str:
    match part:
        case str():
            return part
        case InlineSecret(value):
            return value
        case SecretRef():
            return _resolve(part, in_url=in_url)
        case _:
            assert_never(part)


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
