"""What ends a run or a table from outside: one plain line each, the run's own cause, and always its summary."""

from __future__ import annotations

import os
import re
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.flows import Flow, sqlite_rows, sqlite_script
from tests.services.processes import children_of
from tests.services.s3 import S3Server
from tests.services.s3_proxy import S3Proxy

pytestmark = pytest.mark.server

ORDERS = """
CREATE TABLE orders (id INTEGER PRIMARY KEY, note TEXT);
INSERT INTO orders VALUES (1, 'a'), (2, 'b');
"""
ON_S3 = """
version: 1
flow: shop
state: {state}
spark: {{url: "{spark}"}}
storage:
  "s3://{bucket}":
    {{endpoint: "{endpoint}", region: us-east-1, access_key: "${{secret:env:AK}}", secret_key: "${{secret:env:SK}}"}}
connections:
  src: {{type: sqlite, path: source.db}}
  dst: {{type: {healthy}}}
  lake: {{type: delta, path: "s3://{bucket}/lake"}}
tables:
  here: {{from: src:orders, to: dst:here, mode: truncate}}
  there: {{from: src:orders, to: lake:there, mode: merge, key: [id]}}
"""


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[S3Proxy]:
    with S3Proxy(s3_server.endpoint) as proxy:
        yield proxy


@pytest.mark.parametrize("spark", ["sail", pytest.param("local[2]", marks=pytest.mark.full)])
@pytest.mark.parametrize(
    ("state", "expires_at", "code"),
    [
        pytest.param("state", "/there/_delta_log/0000000000000000000", 4, marks=pytest.mark.full),
        ("state", "/there/part-", 4),
        pytest.param("s3://{bucket}/state", "/state/shop/state/2", 1, marks=pytest.mark.full),
    ],
    ids=["log", "data", "state"],
)
def test_credentials_that_expire_in_the_middle(
    tmp_path: Path,
    s3_server: S3Server,
    s3_bucket: str,
    proxy: S3Proxy,
    spark: str,
    state: str,
    expires_at: str,
    code: int,
) -> None:
    flow = Flow(tmp_path, {"AK": s3_server.access_key, "SK": s3_server.secret_key})
    sqlite_script(tmp_path / "source.db", ORDERS)
    healthy = "delta, path: healthy" if spark == "sail" else "sqlite, path: target.db"
    spec = {"state": state.format(bucket=s3_bucket), "spark": spark, "bucket": s3_bucket, "endpoint": proxy.endpoint}
    flow.write(ON_S3.format(healthy=healthy, **spec))
    proxy.expires_at = expires_at
    done = flow.apply("--parallel", "1", expect=code)
    shown = done.words
    assert f"s3://{s3_bucket}" in shown and "refuses access: the credentials have expired" in shown
    assert done.err.count("Renew the credentials") == 1, shown
    for foreign in ("defect", "Traceback", "\x1b", "<?xml", "planted-in-xml", "PermissionError", "retrying in"):
        assert foreign not in shown, shown
    assert re.search(r"^run \S+: ", done.out, re.MULTILINE), shown
    if code == 4:
        proxy.expires_at, proxy.habit = None, "none"
        assert "run " in flow.apply(expect=0).out


def test_an_engine_that_dies_ends_the_run_with_one_message(tmp_path: Path) -> None:
    flow = Flow(tmp_path)
    sqlite_script(tmp_path / "source.db", ORDERS)
    endless = "SELECT count(*) AS n FROM {{ ref('base') }} a, RANGE(1000000) b, RANGE(1000000) c WHERE c.id % 7 = a.id"
    flow.write(
        "version: 1\nflow: shop\nstate: state\nspark: {url: 'local[2]'}\n"
        "connections:\n  src: {type: sqlite, path: source.db}\n  dst: {type: sqlite, path: target.db}\n"
        "tables:\n  base: {from: src:orders, to: dst:base, mode: truncate}\n"
        + "".join(f'  t{n}: {{from: {{sql: "{endless}"}}, to: dst:t{n}, mode: truncate}}\n' for n in range(6))
    )
    process = flow.start("apply", "flow.yaml", "--parallel", "2")
    assert process.stderr is not None
    assert any(line.startswith("t1: ") for line in iter(process.stderr.readline, ""))
    time.sleep(3)  # both are at work in Spark then
    [jvm] = children_of(process.pid, "java")
    os.kill(jvm, signal.SIGKILL)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 1, out + err
    assert err.count("Spark has ended by itself (killed by signal 9)") == 1, err
    assert "retrying in" not in err and "times in a row" not in err and "error occurred" not in err, err
    assert re.search(r"^run \S+: 2 failed, 4 skipped, 1 committed; ", out, re.MULTILINE), out
    assert sqlite_rows(tmp_path / "target.db", "SELECT count(*) FROM base") == [(2,)]
