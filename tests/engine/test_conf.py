"""Which settings Spark gets, by machine, size and place."""

from __future__ import annotations

from pathlib import Path

import pytest

from flowctl.connectors import registry
from flowctl.engine.conf import INVARIANTS, Machine, Size, conf_for, local_cores, session_conf
from flowctl.spec.spec import SparkSettings

GIB = 1024**3
MACHINE = Machine(cores=8, memory=32 * GIB)
DELTA = Path("/jars/delta-spark_4.1_2.13-4.4.0.jar")
JDBC = Path("/jars/postgresql-42.7.8.jar")
EXTENSIONS = registry.extensions()
ALL_INVARIANTS = {**INVARIANTS, **{name: value for one in EXTENSIONS for name, value in one.invariants.items()}}


def conf(url: str = "local[*]", size: Size = "small", machine: Machine = MACHINE, **own: str) -> dict[str, str]:
    settings = SparkSettings(url, {name.replace("_", "."): value for name, value in own.items()})
    return conf_for(settings, size, machine, [DELTA, JDBC], Path("/scratch"), EXTENSIONS)


def test_small_starts_fast_and_large_runs_fast() -> None:
    small, large = conf(size="small"), conf(size="large")
    assert "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC" in small["spark.driver.extraJavaOptions"]
    assert small["spark.sql.codegen.factoryMode"] == "NO_CODEGEN"
    assert small["spark.sql.codegen.wholeStage"] == "false"
    assert small["spark.databricks.delta.snapshotPartitions"] == "2"
    assert "-XX:+UseParallelGC" in large["spark.driver.extraJavaOptions"]
    assert "TieredStopAtLevel" not in large["spark.driver.extraJavaOptions"]
    assert not any(name.startswith("spark.sql.codegen") for name in large)
    assert large["spark.databricks.delta.snapshotPartitions"] == "8"


def test_medium_compiles_queries_with_the_quick_compiler() -> None:
    medium = conf(size="medium")
    assert "-XX:TieredStopAtLevel=1 -XX:+UseParallelGC" in medium["spark.driver.extraJavaOptions"]
    assert not any(name.startswith("spark.sql.codegen") for name in medium)
    assert medium["spark.driver.memory"] == conf(size="large")["spark.driver.memory"]


def test_large_leaves_the_start_to_the_quick_compiler() -> None:
    assert "-XX:Tier4InvocationThreshold=100000" in conf(size="large")["spark.driver.extraJavaOptions"]
    assert "Tier4" not in conf(size="medium")["spark.driver.extraJavaOptions"]


@pytest.mark.parametrize(
    ("url", "size", "machine", "young"),
    [
        ("local[*]", "large", Machine(2, 24 * GIB), "1024m"),
        ("local[1]", "medium", MACHINE, "512m"),
        ("local[*]", "large", Machine(16, 6 * GIB), "1024m"),
    ],
)
def test_new_objects_get_room_by_task_slot(url: str, size: Size, machine: Machine, young: str) -> None:
    assert f"-XX:MaxNewSize={young}" in conf(url, size, machine)["spark.driver.extraJavaOptions"]


def test_only_a_local_driver_that_reads_rows_has_its_new_objects_bounded() -> None:
    assert "MaxNewSize" not in conf()["spark.driver.extraJavaOptions"]
    assert "MaxNewSize" not in conf("spark://m:7077", "large")["spark.driver.extraJavaOptions"]


def test_a_heap_that_the_spec_sets_is_divided_by_the_jvm() -> None:
    found = conf_for(SparkSettings("local[*]", {"spark.driver.memory": "1g"}), "large", MACHINE, [], Path("/scratch"))
    assert "MaxNewSize" not in found["spark.driver.extraJavaOptions"]


@pytest.mark.parametrize(
    ("url", "size", "memory", "expected"),
    [
        ("local[*]", "small", 32 * GIB, "2048m"),
        ("local[*]", "small", 4 * GIB, "1024m"),
        ("local[*]", "small", 1 * GIB, "768m"),
        ("local[*]", "large", 24 * GIB, "12288m"),
        ("local[*]", "large", 512 * GIB, "30720m"),
        ("spark://m:7077", "large", 512 * GIB, "4096m"),
    ],
)
def test_driver_memory_follows_the_machine(url: str, size: Size, memory: int, expected: str) -> None:
    assert conf(url, size, Machine(8, memory))["spark.driver.memory"] == expected


@pytest.mark.parametrize(
    ("url", "cores"),
    [("local", 1), ("local[3]", 3), ("local[*]", 8), ("local[4, 2]", 4), ("local[*,3]", 8)],
)
def test_local_shuffles_into_as_many_parts_as_there_are_slots(url: str, cores: int) -> None:
    assert local_cores(url, MACHINE) == cores
    assert conf(url)["spark.sql.shuffle.partitions"] == str(cores)


def test_local_driver_listens_on_loopback_only() -> None:
    assert conf()["spark.driver.bindAddress"] == conf()["spark.driver.host"] == "127.0.0.1"
    assert "spark.driver.host" not in conf("spark://m:7077")


@pytest.mark.parametrize("url", ["spark://m:7077", "yarn", "k8s://https://m:443"])
def test_a_cluster_gets_the_jars_from_the_driver(url: str) -> None:
    found = conf(url)
    assert found["spark.jars"] == f"file://{DELTA},file://{JDBC}"
    assert found["spark.driver.extraClassPath"] == f"{DELTA}:{JDBC}"
    assert found["spark.submit.deployMode"] == "client"
    assert "spark.jars" not in conf("local[2]")


@pytest.mark.parametrize("url", ["local[*]", "spark://m:7077"])
def test_tables_share_the_slots_fairly(url: str) -> None:
    found = conf(url)
    assert found["spark.scheduler.mode"] == "FAIR"
    assert Path(found["spark.scheduler.allocation.file"].removeprefix("file://")).is_file()


def test_the_spec_wins_over_what_was_chosen_but_not_over_what_keeps_values_exact() -> None:
    found = conf(
        spark_driver_memory="3g",
        spark_sql_shuffle_partitions="50",
        spark_sql_ansi_enabled="false",
        spark_ui_enabled="true",
    )
    assert found["spark.driver.memory"] == "3g"
    assert found["spark.sql.shuffle.partitions"] == "50"
    assert found["spark.ui.enabled"] == "true"
    assert found["spark.sql.ansi.enabled"] == "true"


@pytest.mark.parametrize("url", ["local[*]", "spark://m:7077", "sc://h:15002"])
@pytest.mark.parametrize("size", ["small", "medium", "large"])
def test_every_session_is_exact(url: str, size: Size) -> None:
    found = session_conf(SparkSettings(url), size, EXTENSIONS)
    assert found.items() >= ALL_INVARIANTS.items()


@pytest.mark.parametrize("url", ["local[*]", "spark://m:7077", "sc://h:15002", "sail"])
def test_no_setting_of_the_spec_turns_an_invariant_off(url: str) -> None:
    own = {name: "false" if value == "true" else "true" for name, value in ALL_INVARIANTS.items()}
    own["spark.sql.parser.escapedStringLiterals"] = "true"
    found = session_conf(SparkSettings(url, own), "small", EXTENSIONS)
    assert found.items() >= (INVARIANTS if url == "sail" else ALL_INVARIANTS).items()
    assert "spark.sql.parser.escapedStringLiterals" not in found
    assert INVARIANTS["spark.sql.variable.substitute"] == "false"


def test_lists_of_both_are_joined() -> None:
    settings = SparkSettings(
        "spark://m:7077",
        {
            "spark.driver.extraClassPath": "/own.jar",
            "spark.jars": "/own2.jar",
            "spark.driver.extraJavaOptions": "-Dmine=1",
            "spark.sql.extensions": "org.Mine",
        },
    )
    found = conf_for(settings, "large", MACHINE, [DELTA], Path("/scratch"), EXTENSIONS)
    assert found["spark.driver.extraClassPath"] == f"{DELTA}:/own.jar"
    assert found["spark.jars"] == f"file://{DELTA},/own2.jar"
    assert found["spark.driver.extraJavaOptions"].endswith("-Dmine=1")
    assert found["spark.sql.extensions"] == "io.delta.sql.DeltaSparkSessionExtension,org.Mine"


def test_without_deltas_jar_nothing_speaks_of_delta_classes() -> None:
    found = conf_for(SparkSettings(), "large", MACHINE, [JDBC], Path("/scratch"))
    assert "spark.sql.extensions" not in found
    assert "spark.sql.catalog.spark_catalog" not in found


def test_the_archive_is_used_when_there_is_one() -> None:
    found = conf_for(SparkSettings(), "small", MACHINE, [DELTA], Path("/scratch"), EXTENSIONS, Path("/home/a b/x.jsa"))
    assert '"-XX:SharedArchiveFile=/home/a b/x.jsa" -Xshare:auto' in found["spark.driver.extraJavaOptions"]


def test_the_jvm_never_speaks_on_standard_output() -> None:
    assert "-Xlog:disable -Xlog:all=error:stderr" in conf()["spark.driver.extraJavaOptions"]
