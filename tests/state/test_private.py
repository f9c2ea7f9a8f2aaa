"""What is kept on a disk is for the user who runs the flow, or for those whom a shared folder is for."""

from __future__ import annotations

import os
import resource
import signal
import stat
import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from flowctl.errors import AbortRun
from flowctl.model.step import Plan
from flowctl.plan import planfile
from flowctl.state.lease import Lease
from flowctl.storage.buffer import Buffer
from flowctl.storage.options import open_store


@pytest.fixture(autouse=True, params=[0o022, 0o002, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def modes(place: Path) -> dict[str, str]:
    return {str(path.relative_to(place)): oct(stat.S_IMODE(path.stat().st_mode)) for path in sorted(place.rglob("*"))}


def keep(state: Path) -> None:
    """All kinds of things that lie in a flow's folder."""
    blobs = open_store(str(state / "shop"), {})
    for name in ("state/1.json", "runs/a.json", "files/b.json.gz", "files/retired/b.1"):
        assert blobs.create(name, b"x")
    with Lease.acquire(blobs):
        pass
    buffer = Buffer(str(state / "shop"), "run-1", {})
    rows = pa.table({"id": [1]})
    with buffer.folder("rows").sink(rows.schema) as sink:
        sink.write(rows.to_batches()[0])
    buffer.folder("of Spark's own making")


def test_state_and_buffer_are_for_one_user(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    keep(tmp_path / "some" / "state")
    found = modes(tmp_path)
    assert {path: mode for path, mode in found.items() if mode not in ("0o700", "0o600")} == {}
    assert "some/state/shop/buffer/run-1/rows" in found and any(
        path.startswith("some/state/shop/lease/") for path in found
    )


def test_a_folder_that_a_group_may_write_is_shared_with_it(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state").chmod(0o2770)
    keep(tmp_path / "state")
    assert set(modes(tmp_path / "state").values()) == {"0o2770", "0o660"}


def test_a_folder_for_everybody_is_shared_with_nobody(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    (tmp_path / "state").chmod(0o1777)
    keep(tmp_path / "state")
    assert set(modes(tmp_path / "state").values()) == {"0o700", "0o600"}


def test_a_saved_plan_is_for_one_user(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    (tmp_path / "plan.json").touch(0o644)
    planfile.save(Plan("shop", "", 0, "", "", "", (), ()), tmp_path / "plan.json")
    assert modes(tmp_path) == {"plan.json": "0o600"}


def test_a_table_lease_leaves_the_lake_to_its_readers(tmp_path: Path, umask: int) -> None:
    blobs = open_store(str(tmp_path / "lake" / "_flowctl" / "lease" / "orders"), {}, private=False)
    with Lease.acquire(blobs, prefix=""):
        pass
    assert modes(tmp_path)["lake"] == oct(0o777 & ~umask)


def test_a_full_disk_and_a_crash_leave_nothing_behind(tmp_path: Path) -> None:
    blobs = open_store(str(tmp_path), {})
    assert blobs.create("lease/1.json", b"x")
    for name, age in (("01" * 16, 90_000), ("23" * 16, 0)):
        left = tmp_path / "lease" / f".2.json.{name}"
        left.write_bytes(b"cut o")
        os.utime(left, (time.time() - age,) * 2)
    assert open_store(str(tmp_path), {}).create("lease/2.json", b"x")
    there = sorted(path.name for path in (tmp_path / "lease").iterdir())
    assert there == [f".2.json.{'23' * 16}", "1.json", "2.json"]


def test_a_write_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    """As on a full disk: the file is there, its content is refused."""
    blobs = open_store(str(tmp_path), {})
    blobs.create("lease/1.json", b"x")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100, before[1]))
    try:
        with pytest.raises(AbortRun, match="File too large"):
            blobs.create("lease/2.json", b"x" * 200)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, ignored)
    assert [path.name for path in (tmp_path / "lease").iterdir()] == ["1.json"]
