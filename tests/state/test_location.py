"""Where state lies, and which Spark can reach it."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from flowctl.errors import ExitCode, SpecError
from flowctl.spec.spec import SparkSettings, Spec, StateLocation
from flowctl.state.location import check_reachable, flow_url


def spec_at(path: Path, state: str) -> Spec:
    return Spec("shop", StateLocation(state), {}, {}, SparkSettings(), (), "", str(path))


@pytest.mark.parametrize(
    ("state", "url"),
    [
        ("state", "{folder}/state/shop"),
        ("./state/", "{folder}/state/shop"),
        ("../state", "{parent}/state/shop"),
        ("/var/flowctl", "/var/flowctl/shop"),
        ("file:///var/flowctl", "/var/flowctl/shop"),
        ("s3://lake/_flowctl/dev/", "s3://lake/_flowctl/dev/shop"),
        ("memory://dev", "memory://dev/shop"),
    ],
)
def test_state_lies_below_the_flows_name_from_the_specs_folder(tmp_path: Path, state: str, url: str) -> None:
    found = flow_url(spec_at(tmp_path / "shop.yaml", state))
    assert found == url.format(folder=tmp_path, parent=tmp_path.parent)


@pytest.mark.parametrize(
    ("state", "spark"),
    [
        ("/var/flowctl", "local[*]"),
        ("/var/flowctl", "local"),
        ("/var/flowctl", "sail"),
        ("/var/flowctl", "sc://localhost:15002"),
        ("/var/flowctl", "sc://127.0.0.1:15002/;token=x"),
        ("/var/flowctl", f"spark://{socket.gethostname()}:7077"),
        ("s3://lake/state", "yarn"),
        ("s3://lake/state", "k8s://https://cluster:6443"),
    ],
)
def test_executors_that_can_reach_the_buffer(state: str, spark: str) -> None:
    check_reachable(state, spark)


@pytest.mark.parametrize(
    ("state", "spark"),
    [
        ("/var/flowctl", "yarn"),
        ("/var/flowctl", "k8s://https://127.0.0.1:6443"),
        ("/var/flowctl", "spark://elsewhere:7077"),
        ("/var/flowctl", "spark://localhost:7077,elsewhere:7077"),
        ("/var/flowctl", "sc://elsewhere"),
        ("memory://dev", "local[*]"),
    ],
)
def test_executors_that_cannot_are_refused(state: str, spark: str) -> None:
    with pytest.raises(SpecError, match="cannot reach the buffer") as refusal:
        check_reachable(state, spark)
    assert refusal.value.exit_code == ExitCode.SPEC
