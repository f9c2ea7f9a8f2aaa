"""Classic Spark (``local[*]``, ``spark://``, YARN, Kubernetes): a child JVM.

Its output goes to a file. It ends when the pipe to this process closes, so also if this process is killed. It receives
neither Ctrl-C nor the group's SIGTERM, so that commits in progress can finish.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowctl.engine import archive, jars, java
from flowctl.engine.base import Engine
from flowctl.engine.conf import Extension, conf_for, is_local, this_machine
from flowctl.engine.cost import Size
from flowctl.engine.environment import change_environment
from flowctl.engine.jvm import launch
from flowctl.engine.scratch import scratch_folder
from flowctl.engine.session import INTERPRETED
from flowctl.errors import EngineFailed
from flowctl.spec.spec import SparkSettings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class ClassicEngine(Engine):
    """``own_conf`` are the spec's settings, which override what flowctl chooses."""

    def __init__(
        self,
        spark: SparkSession,
        own_conf: Mapping[str, str],
        process: subprocess.Popen[bytes] | None = None,
        log: Path | None = None,
    ) -> None:
        super().__init__(spark, process, log)
        self._own_conf = own_conf

    def new_session(self, *, interpreted: bool) -> SparkSession:
        session = self.spark.newSession()
        for name, value in INTERPRETED.items() if interpreted else ():
            if name not in self._own_conf:
                session.conf.set(name, value)
        return session


@contextmanager
def open_classic(
    settings: SparkSettings,
    jar_sets: Collection[str],
    extensions: Collection[Extension],
    storage_conf: Mapping[str, str],
    size: Size,
    *,
    verbose: bool,
    say: Callable[[str], None] | None,
    stop_seconds: float,
) -> Iterator[ClassicEngine]:
    """As :func:`flowctl.engine.start.open_engine`."""
    found = java.find()
    class_path, class_data = archive.class_path_for(found, jars.ensure(jar_sets, say))
    with scratch_folder() as scratch:
        conf = conf_for(settings, size, this_machine(), class_path, scratch, extensions, class_data)
        log = None if verbose else scratch / "spark.log"
        with (
            change_environment(_driver_environment(found, settings.url)),
            launch(conf, scratch, log, stop_seconds) as gateway,
            _open_application(gateway, {**conf, **storage_conf}) as spark,
        ):
            engine = ClassicEngine(spark, settings.conf, gateway.proc, log)
            try:
                yield engine
            finally:
                with suppress(Exception):  # a JVM that died has nothing to interrupt; its end is reported elsewhere
                    engine.interrupt_all()


@contextmanager
def _open_application(gateway: Any, conf: Mapping[str, str]) -> Iterator[SparkSession]:
    from pyspark.sql import SparkSession

    spark = SparkSession(_start_context(gateway, conf))
    try:
        yield spark
    finally:
        with suppress(Exception):
            spark.stop()


def _start_context(gateway: Any, conf: Mapping[str, str]) -> Any:
    from py4j.protocol import Py4JError
    from pyspark import SparkConf, SparkContext

    interrupt_handler = signal.getsignal(signal.SIGINT)
    try:
        return SparkContext(conf=SparkConf(loadDefaults=False).setAll(list(conf.items())), gateway=gateway)
    except (Py4JError, OSError) as error:
        cause = str(getattr(error, "java_exception", error)).splitlines()[0]
        raise EngineFailed(
            f"Spark did not start on {conf['spark.master']}: {cause}",
            hint="Check spark.url and spark.conf; --verbose shows Spark's own log",
        ) from error
    finally:
        # SparkContext replaces the handler of Ctrl-C.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, interrupt_handler)


def _driver_environment(found: java.Java, url: str) -> dict[str, str | None]:
    """Changes to the variables that pyspark and Spark's scripts read. Variables that would create another kind of
    session than the spec's are removed; executors use this Python unless the user has set another."""
    return {
        "JAVA_HOME": str(found.home),
        "PYSPARK_PYTHON": os.environ.get("PYSPARK_PYTHON", sys.executable),
        "SPARK_LOCAL_IP": "127.0.0.1" if is_local(url) else os.environ.get("SPARK_LOCAL_IP"),
        "SPARK_LAUNCHER_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto",
        **dict.fromkeys(("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "SPARK_API_MODE", "PYSPARK_SUBMIT_ARGS")),
    }
