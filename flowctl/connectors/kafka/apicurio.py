"""Apicurio's own interface: schemas by the ids that its serializers put into headers. Its interface for clients of
Confluent's registry does not know global ids, and has other numbers for content in some configurations."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from flowctl.connectors.kafka.schema_ids import HeaderId

#: Asks for a path below the interface; None: there is no such thing (HTTP 404).
Get = Callable[[str], bytes | None]
_CONFLUENT, _OWN = "/apis/ccompat/", "/apis/registry/v3"


@dataclass(frozen=True)
class Artifact:
    """``references`` as in :class:`flowctl.connectors.kafka.registry.Schema`."""

    kind: str
    text: str
    references: Mapping[str, str]


def own_url(url: str) -> str | None:
    """Of Apicurio's interface; None if ``url`` is not that of its other one."""
    base, found, _ = url.partition(_CONFLUENT)
    return f"{base}{_OWN}" if found else None


def find_artifact(id: HeaderId, get: Get) -> Artifact | None:
    """None if no schema has this id. Raises ``LookupError`` if the registry does not have this interface."""
    found = get(f"search/versions?{id.kind}={id.value}")
    if found is None:
        raise LookupError
    versions = json.loads(found)["versions"]
    if not versions:
        return None
    place = f"ids/globalIds/{versions[0]['globalId']}"
    references: dict[str, str] = {}
    _add_references(place, references, get)
    return Artifact(str(versions[0]["artifactType"]), (get(place) or b"").decode(), references)


def _add_references(place: str, known: dict[str, str], get: Get) -> None:
    for one in json.loads(get(f"{place}/references") or b"[]"):
        if one["name"] not in known:
            version = _version(one)
            _add_references(version, known, get)
            known[one["name"]] = (get(f"{version}/content") or b"").decode()


def _version(reference: Mapping[str, Any]) -> str:
    group, artifact, version = (
        quote(str(reference.get(name) or "default"), safe="") for name in ("groupId", "artifactId", "version")
    )
    return f"groups/{group}/artifacts/{artifact}/versions/{version}"
