"""The life of a Spark application: what sessions see, how it ends, what it says when it cannot start."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from flowctl.engine import java
from flowctl.engine.base import Engine
from flowctl.engine.classic import ClassicEngine
from flowctl.engine.conf import INVARIANTS
from flowctl.engine.environment import change_environment
from flowctl.engine.start import open_engine, silence_pyspark
from flowctl.errors import EngineFailed
from flowctl.spec.spec import SparkSettings
from tests.services.processes import free_port

SECRET = "planted-secret-4711"


def test_each_table_has_a_session_of_its_own_with_the_settings_that_keep_values_exact(engine: Engine) -> None:
    one, two = engine.session_for("one"), engine.session_for("two")
    assert one is engine.session_for("one")
    one.conf.set("spark.databricks.delta.commitInfo.userMetadata", "of one")
    one.range(1).createOrReplaceTempView("of_one")
    assert two.conf.get("spark.databricks.delta.commitInfo.userMetadata", None) is None
    assert not two.catalog.tableExists("of_one")
    for table in (one, two):
        assert {name: table.conf.get(name) for name in INVARIANTS} == INVARIANTS


def test_delta_writes_and_reads(engine: Engine, tmp_path: Path) -> None:
    spark = engine.session_for("delta")
    spark.range(10).write.format("delta").save(str(tmp_path / "t"))
    assert spark.read.format("delta").load(str(tmp_path / "t")).count() == 10


def test_a_python_function_made_inside_a_function_runs_on_executors(engine: Engine) -> None:
    from collections.abc import Iterator

    import pyarrow as pa

    def doubled(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow
        import pyarrow.compute

        for batch in batches:
            yield pyarrow.record_batch([pyarrow.compute.multiply(batch.column(0), 2)], names=["id"])

    frame = engine.session_for("python").range(3).mapInArrow(doubled, "id bigint")
    assert sorted(row.id for row in frame.collect()) == [0, 2, 4]


@pytest.mark.server
@pytest.mark.full
def test_an_engine_after_another_has_settings_of_its_own_and_nothing_is_said(tmp_path: Path) -> None:
    """The second JVM must not be the first; nor does any of it write to our output, or show a credential in `ps`."""
    ran = run(
        f"""
        for size, memory in (("small", "700m"), ("large", "800m")):
            with open_engine(
                SparkSettings("local[1]", {{"spark.driver.memory": memory}}),
                [],
                {{"spark.hadoop.fs.s3a.secret.key": "{SECRET}"}},
                size,
            ) as engine:
                spark = engine.session_for("t")
                assert spark.conf.get("spark.driver.memory") == memory
                assert spark.conf.get("spark.sql.codegen.wholeStage") == ("false" if size == "small" else "true")
                assert spark.range(5).count() == 5
                shown = subprocess.run(["ps", "-wweo", "args"], capture_output=True, text=True).stdout
                assert "pyspark-shell" in shown
                assert not (found := [line for line in shown.splitlines() if "{SECRET}" in line]), found
        """,
        tmp_path,
    )
    assert ran.stdout + ran.stderr == ""
    assert ran.returncode == 0


@pytest.mark.server
def test_a_killed_python_leaves_no_jvm_and_the_groups_sigterm_spares_it(tmp_path: Path) -> None:
    started = start(
        """
        with open_engine(SparkSettings("local[1]", {"spark.driver.memory": "700m"}), [], {}, "small") as engine:
            from pyspark import SparkContext
            signal.signal(signal.SIGTERM, lambda *_: None)
            print(SparkContext._gateway.proc.pid, flush=True)
            while True:
                time.sleep(1)
        """,
        tmp_path,
    )
    assert started.stdout is not None
    jvm = int(started.stdout.readline())
    os.killpg(started.pid, signal.SIGTERM)
    time.sleep(0.5)
    assert alive(jvm)
    started.kill()
    started.communicate()
    assert eventually_gone(jvm)


@pytest.mark.server
@pytest.mark.full
def test_verbose_passes_the_jvms_words_on_to_standard_error_only(tmp_path: Path) -> None:
    ran = run(
        """
        settings = SparkSettings("local[1]", {"spark.driver.memory": "700m"})
        with open_engine(settings, [], {}, "small", verbose=True) as engine:
            assert engine.log is None
        """,
        tmp_path,
    )
    assert (ran.returncode, ran.stdout) == (0, "")
    assert "incubator" in ran.stderr


@pytest.mark.server
def test_what_still_runs_is_interrupted_at_the_end(tmp_path: Path) -> None:
    ran = run(
        """
        with open_engine(SparkSettings("local[1]", {"spark.driver.memory": "700m"}), [], {}, "small") as engine:
            spark = engine.session_for("slow")
            told = []
            def query():
                try:
                    spark.range(10**15).selectExpr("sum(id % 7)").collect()
                except Exception as error:
                    told.append(str(error))
            thread = threading.Thread(target=query)
            thread.start()
            time.sleep(4)
        thread.join(20)
        assert not thread.is_alive() and told, told
        """,
        tmp_path,
    )
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"JAVA_HOME": "/nowhere"}, "JAVA_HOME is /nowhere, which has no bin/java"),
        ({"PATH": "/nowhere", "JAVA_HOME": ""}, "no java on the path"),
    ],
)
def test_without_java_the_error_says_what_to_install(
    environment: Mapping[str, str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(EngineFailed, match=message) as caught, open_engine(SparkSettings(), [], {}, "small"):
        pass
    assert "openjdk-17-jre-headless" in caught.value.hint


def test_a_java_that_is_too_old_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").write_text("#!/bin/sh\n")
    (tmp_path / "bin" / "java").chmod(0o755)
    (tmp_path / "release").write_text('JAVA_RUNTIME_VERSION="11.0.20+8"\n')
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(EngineFailed, match=r"11\.0\.20"):
        java.find()


def test_a_dead_connect_port_is_told_at_once() -> None:
    url = f"sc://127.0.0.1:{free_port()}"
    with (
        pytest.raises(EngineFailed, match="No Spark Connect server answers"),
        open_engine(SparkSettings(url), ["delta"], {}, "small"),
    ):
        pass


@pytest.mark.parametrize(
    ("text", "is_the_end"),
    [
        ("An error occurred while calling o42.count", True),  # py4j's, when the connection broke amid the answer
        ("An error occurred while calling o42.count.\n: java.lang.ArithmeticException\n\tat o.a.Row", False),
        ("An error occurred while calling o42.count. Trace:\npy4j.Py4JException: Method count", False),
    ],
)
def test_a_process_that_ends_a_moment_after_its_connection_is_the_cause(text: str, is_the_end: bool) -> None:
    with subprocess.Popen(["sleep", "0.5"]) as process:
        engine = ClassicEngine(None, {}, process)  # type: ignore[arg-type]
        lost = engine.lost(text)
    assert (lost is not None) == is_the_end
    assert lost is None or lost.message == "Spark has ended by itself (exit code 0)"


@pytest.mark.server
def test_options_that_spark_refuses_are_told_in_its_own_words(tmp_path: Path) -> None:
    ran = run(
        """
        settings = SparkSettings("local[1]", {"spark.driver.extraJavaOptions": "-Xmx9g"})
        try:
            with open_engine(settings, [], {}, "small"):
                pass
        except FlowctlError as error:
            print(error.describe())
        """,
        tmp_path,
    )
    assert "Not allowed to specify max heap" in ran.stdout
    assert "--verbose" in ran.stdout


def test_the_environment_is_as_before() -> None:
    with change_environment({"FLOWCTL_A": "1", "PATH": None}):
        assert os.environ["FLOWCTL_A"] == "1" and "PATH" not in os.environ
    assert "FLOWCTL_A" not in os.environ and "PATH" in os.environ


PROLOGUE = """\
import signal, subprocess, threading, time
from flowctl.errors import FlowctlError
from flowctl.engine.start import open_engine
from flowctl.engine.start import silence_pyspark
from flowctl.spec.spec import SparkSettings
"""


def start(body: str, folder: Path) -> subprocess.Popen[str]:
    script = folder / "script.py"
    script.write_text(PROLOGUE + textwrap.dedent(body))
    return subprocess.Popen(
        [sys.executable, "-W", "error", str(script)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def run(body: str, folder: Path) -> subprocess.CompletedProcess[str]:
    process = start(body, folder)
    out, err = process.communicate(timeout=180)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def alive(pid: int) -> bool:
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def eventually_gone(pid: int) -> bool:
    deadline = time.monotonic() + 30
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    return not alive(pid)


def test_pyspark_logs_no_error_beside_raising_it(capfd: pytest.CaptureFixture[str]) -> None:
    from pyspark.logger import PySparkLogger

    silence_pyspark()
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).exception("a raw line", errorClass="SOME_CLASS")
    assert capfd.readouterr() == ("", "")
