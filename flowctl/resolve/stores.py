"""Checks the stores in a spec: each must have a known scheme, and credentials only where they are used."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from flowctl.connectors import registry
from flowctl.diagnostics import Diagnostic
from flowctl.engine.session import SAIL
from flowctl.spec.spec import Spec
from flowctl.spec.suggest import nearest
from flowctl.storage.stores import by_scheme
from flowctl.storage.urls import scheme

_URL = re.compile(r"[a-z0-9]+:/|.*://")


def check(spec: Spec) -> Iterator[Diagnostic]:
    """URLs that contain secrets are checked only once the secrets are resolved."""
    state = "state.url" if "state.url" in spec.marks else "state"
    urls: dict[str, object] = {state: spec.state.url}
    for name, connection in spec.connections.items():
        if option := registry.capabilities(connection.type).storage:
            urls[f"connections.{name}.{option}"] = registry.storage(connection)
    for path, url in urls.items():
        if isinstance(url, str) and _URL.match(url):
            yield from _check_url(spec, path, url)
    for prefix, given in spec.storage.items():
        yield from _check_credentials(spec, prefix, given)
    if spec.spark.url != SAIL:
        yield from _check_sets(spec)


def _check_url(spec: Spec, path: str, url: str) -> Iterator[Diagnostic]:
    """``s3://`` alone and ``s3:/bucket`` would be folders of that name, and an unknown scheme would fail only in the
    first run."""
    label = path.removesuffix(".url")
    name, _, rest = url.partition(":/")
    store = by_scheme().get(name)
    if store is None:
        usual = [
            scheme for scheme, store in by_scheme().items() if scheme == store.schemes[0] and not store.is_of_process
        ]
        hint = nearest(name, tuple(by_scheme()), f"Use one of: {', '.join(usual)}")
        yield Diagnostic(f"`{label}`: there is no storage `{name}://`", hint, spec.marks.get(path), "unknown-storage")
    elif store.is_of_process:
        what = f"`{label}`: {name}:// is {store.place}, which ends with each run"
        yield Diagnostic(what, "Use a local folder or object storage", spec.marks.get(path), "storage-of-process")
    elif not rest.startswith("/"):
        hint = f"Write {name}://{store.bucket if store.has_buckets else ''}/path"
        yield Diagnostic(f"`{label}` has one slash after {name}:", hint, spec.marks.get(path), "one-slash")
    elif store.has_buckets and not rest[1:].partition("/")[0]:
        hint = f"Write {name}://{store.bucket}/path"
        yield Diagnostic(f"`{label}` names no {store.bucket}", hint, spec.marks.get(path), "no-bucket")


def _check_sets(spec: Spec) -> Iterator[Diagnostic]:
    """Spark would use the last set for all."""
    first: dict[str, Mapping[str, object]] = {}
    for prefix, given in spec.storage.items():
        name = scheme(prefix)
        store = by_scheme().get(name)
        if store and store.has_one_set_on_spark and first.setdefault(name, given) != given:
            what = f"`storage.{prefix}`: Spark takes one set of credentials for all of {name}://"
            hint = "Write the same keys for each prefix, or split the flow"
            yield Diagnostic(what, hint, spec.marks.get(f"storage.{prefix}"), "one-set-on-spark")


def _check_credentials(spec: Spec, prefix: str, given: Mapping[str, object]) -> Iterator[Diagnostic]:
    """Stores that take no credentials would ignore them silently; Spark cannot use each kind."""
    store = by_scheme().get(scheme(prefix))
    if not given or store is None:
        return
    if not store.takes_credentials:
        what = f"`storage.{prefix}`: credentials are for object storage only"
        yield Diagnostic(what, "Remove them", spec.marks.get(f"storage.{prefix}"), "unused-credentials")
    if spec.spark.url == SAIL:
        return
    for key in given.keys() & store.not_on_spark.keys():
        what, mark = f"`storage.{prefix}`: Spark cannot use {key}", spec.marks.get(f"storage.{prefix}.{key}")
        yield Diagnostic(what, store.not_on_spark[key], mark, "not-on-spark")
