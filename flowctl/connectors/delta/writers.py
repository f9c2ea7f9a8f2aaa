"""The writer of each way."""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowctl.connectors.delta.choice import EngineTraits, Way
from flowctl.connectors.delta.file_writer import FileWriter
from flowctl.connectors.delta.spark_writer import SparkWriter
from flowctl.connectors.delta.writer import Writer, required_scratch
from flowctl.storage.scratch import Scratch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def writer_for(way: Way, engine: EngineTraits, spark: SparkSession, scratch: Scratch | None) -> Writer:
    match way:
        case Way.STATEMENTS:
            return SparkWriter(spark, scratch, makes_tables=not engine.setting)
        case Way.FILES | Way.MARKS:
            return FileWriter(spark, required_scratch(scratch))
