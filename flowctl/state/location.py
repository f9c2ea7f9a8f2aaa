"""Where a flow's state is stored, and whether Spark can reach it: executors read and write the buffer there."""

from __future__ import annotations

import re
import socket
from pathlib import Path

from flowctl.diagnostics import Diagnostic
from flowctl.errors import AbortRun, SpecError, TableError
from flowctl.spec.spec import Spec
from flowctl.storage.blobs import BlobStore
from flowctl.storage.options import open_store, store_of
from flowctl.storage.urls import local_path, scheme


def flow_url(spec: Spec) -> str:
    """``<state>/<flow>``. A relative local path is relative to the spec file's folder."""
    url = spec.state.url.rstrip("/")
    if scheme(url) == "file":
        url = str((Path(spec.base_dir) / local_path(url).expanduser()).resolve())
    return f"{url}/{spec.flow}"


def open_flow(spec: Spec) -> BlobStore:
    """The flow's own store: state, lease and runs. :class:`AbortRun` if its options cannot be used."""
    mark = spec.marks.get("state.url") or spec.marks.get("state")
    try:
        return open_store(flow_url(spec), spec.storage, unsafe=spec.state.unsafe, mark=mark)
    except TableError as error:
        raise AbortRun(error.message, hint=error.hint, mark=mark) from error


def check_reachable(state_url: str, spark_url: str) -> None:
    """Raises :class:`SpecError` if executors at ``spark_url`` could not reach a buffer below ``state_url``."""
    place = store_of(state_url).place
    if not place:
        return
    if scheme(state_url) != "file" or not _is_here(spark_url):
        what = f"state {state_url} is {place}, where Spark at {spark_url} cannot reach the buffer"
        hint = "Put state into object storage, or use spark.url local[*]"
        raise SpecError([Diagnostic(what, hint, None, "state-out-of-reach")])


def _is_here(spark_url: str) -> bool:
    if re.fullmatch(r"local(\[.*\])?|sail", spark_url):
        return True
    scheme, _, rest = spark_url.partition("://")
    if scheme not in ("spark", "sc"):
        return False
    hosts = {re.sub(r":\d+$", "", address) for address in rest.partition("/")[0].split(",")}
    return hosts <= {"localhost", "127.0.0.1", "[::1]", socket.gethostname(), socket.getfqdn()}
