"""Delta tables below one root folder, as source and target. Metadata is read from the log itself (``deltalake``, no
JVM), rows are read by this process. They are written by Spark in SQL that classic and Connect sessions both support, or
as files that flowctl commits itself."""

from __future__ import annotations

import os.path
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flowctl.connectors.base import Capabilities, Connector, OpenContext
from flowctl.connectors.delta.gaps import of_spec
from flowctl.connectors.delta.types import refused_name, refused_path, widens
from flowctl.connectors.source import SourceCapabilities
from flowctl.connectors.target import TargetCapabilities
from flowctl.engine.conf import Extension
from flowctl.model.table_info import ObjectName
from flowctl.spec.spec import Connection
from flowctl.storage.urls import path_place, without_scheme

_SPARK = Extension(
    name="Delta",
    sign="DeltaSparkSessionExtension",
    application={
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    },
    # Delta copies a source that MERGE reads twice, unless it is a Delta table. Ours is already in the buffer.
    session={"spark.databricks.delta.merge.materializeSource": "none"},
    invariants={"spark.databricks.delta.schema.autoMerge.enabled": "false"},
    partitions=("spark.databricks.delta.snapshotPartitions",),
)
CAPABILITIES = Capabilities(
    source=SourceCapabilities(position="version"),
    target=TargetCapabilities(
        widens=widens,
        refuses_names=refused_name,
        folds_fields=True,
        replaces_types=True,
    ),
    extra="delta",
    drivers=("deltalake",),
    jars=("delta",),
    spark=_SPARK,
    training=lambda folder: {"path": folder},
    signs=("io.delta", "DELTA_", "Delta log", "_delta_log"),
    storage="path",
    places=lambda options: [without_scheme(options["path"])],
    gaps=of_spec,
)


def place(options: Mapping[str, Any], object: ObjectName, base_dir: str) -> str:
    return path_place("/".join([str(options["path"]), *object.parts]), base_dir)


def refuse_name(options: Mapping[str, Any], object: ObjectName, base_dir: str) -> str | None:
    """Checks the root path too, unless it is a URL."""
    root = str(options["path"])
    if "://" in root:
        return refused_path("/".join(object.parts), is_local=False)
    return refused_path("/".join([os.path.realpath(Path(base_dir, root)), *object.parts]), is_local=True)


@contextmanager
def connect(connection: Connection, context: OpenContext) -> Iterator[Connector]:
    """``path`` is the root; a relative local path starts from the spec's folder."""
    from flowctl.connectors.delta.source import DeltaSource
    from flowctl.connectors.delta.target import DeltaTarget
    from flowctl.spec.secrets import reveal
    from flowctl.storage.folders import look_at

    root = str(reveal(connection.options["path"]))
    if "://" not in root:
        root = str((Path(context.base_dir) / root).resolve())
    yield Connector(
        source=DeltaSource(root, context.storage, CAPABILITIES),
        target=DeltaTarget(root, context.storage, context.buffer, CAPABILITIES),
        greet=lambda: f"Delta tables below {look_at(root, context.storage)}",
    )
