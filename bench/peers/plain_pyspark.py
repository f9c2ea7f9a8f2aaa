"""A handwritten script: ``plain_pyspark.py TASK OPTIONS_AS_JSON CLASS_PATH``, with the password in the environment.
It keeps no state: neither a position nor whether it has run before."""

import json
import os
import sys
from typing import Any

from delta.tables import DeltaTable
from pyspark.sql import DataFrame, SparkSession


def bulk(spark: SparkSession, options: dict[str, Any]) -> None:
    """One table from a database."""
    _jdbc(spark, options, options["table"]).write.format("delta").mode("overwrite").save(_place(options))


def csv(spark: SparkSession, options: dict[str, Any]) -> None:
    frame = spark.read.schema(options["schema"]).csv(options["path"], header=True)
    frame.write.format("delta").mode("overwrite").save(_place(options))


def csv_to_iceberg(spark: SparkSession, options: dict[str, Any]) -> None:
    for name, value in {
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": options["lake"],
        "fs.s3a.endpoint": options["endpoint"],
        "fs.s3a.endpoint.region": os.environ["AWS_REGION"],
        "fs.s3a.path.style.access": "true",
        "fs.s3a.access.key": os.environ["AWS_ACCESS_KEY_ID"],
        "fs.s3a.secret.key": os.environ["AWS_SECRET_ACCESS_KEY"],
    }.items():
        spark.conf.set(name, value)
    frame = spark.read.schema(options["schema"]).csv(options["path"], header=True)
    frame.writeTo(f"lake.bench.{options['name']}").create()


def delta_to_jdbc(spark: SparkSession, options: dict[str, Any]) -> None:
    properties = {**_access(options), "batchsize": "10000", "reWriteBatchedInserts": "true"}
    spark.read.format("delta").load(options["path"]).write.jdbc(options["url"], options["table"], properties=properties)


def parquet(spark: SparkSession, options: dict[str, Any]) -> None:
    spark.read.parquet(options["path"]).write.format("delta").mode("overwrite").save(_place(options))


def create(spark: SparkSession, options: dict[str, Any]) -> None:
    """The table that the tasks below change, with deletion vectors enabled."""
    spark.conf.set("spark.databricks.delta.properties.defaults.enableDeletionVectors", "true")
    frame = _jdbc(spark, options, options["table"])
    if options.get("versions"):
        frame = frame.selectExpr("*", "updated_at AS valid_from", "CAST(NULL AS timestamp_ntz) AS valid_to")
    frame.write.format("delta").mode("overwrite").save(_place(options))


def merge(spark: SparkSession, options: dict[str, Any]) -> None:
    """Merges the rows above a position that the caller provides."""
    changed = _jdbc(spark, options, f"(SELECT * FROM {options['table']} WHERE {options['where']}) AS changed")
    target = DeltaTable.forPath(spark, _place(options)).alias("t")
    merging = target.merge(changed.alias("s"), f"t.{options['key']} = s.{options['key']}")
    merging.whenMatchedUpdateAll().whenNotMatchedInsertAll().execute()


def scd2(spark: SparkSession, options: dict[str, Any]) -> None:
    """The usual MERGE: each changed row twice, once to end the current version, once to be inserted."""
    key = options["key"]
    query = f"(SELECT * FROM {options['table']} WHERE {options['where']}) AS changed"
    changed = _jdbc(spark, options, query).cache()
    source = changed.selectExpr("*", f"{key} AS merge_key").unionByName(
        changed.selectExpr("*", "CAST(NULL AS bigint) AS merge_key")
    )
    new = {name: f"s.{name}" for name in changed.columns} | {"valid_from": "s.updated_at", "valid_to": "NULL"}
    target = DeltaTable.forPath(spark, _place(options)).alias("t")
    (
        target.merge(source.alias("s"), f"t.{key} = s.merge_key AND t.valid_to IS NULL")
        .whenMatchedUpdate(condition="s.updated_at > t.updated_at", set={"valid_to": "s.updated_at"})
        .whenNotMatchedInsert(condition="s.merge_key IS NULL", values=new)
        .execute()
    )


def topic(spark: SparkSession, options: dict[str, Any]) -> None:
    """One pass of Structured Streaming over a topic of messages in JSON, or in Avro after the id of their schema; what
    is neither is left out."""
    messages = (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", options["brokers"])
        .option("subscribe", options["topic"])
        .option("startingOffsets", "earliest")
        .load()
    )
    parsed = messages.selectExpr(
        _value(options),
        "CAST(key AS string) AS _key",
        "partition AS _partition",
        "offset AS _offset",
        "timestamp AS _timestamp",
    )
    writing = parsed.where("v.id IS NOT NULL").select("v.*", "_key", "_partition", "_offset", "_timestamp").writeStream
    writing = writing.format("delta").option("checkpointLocation", f"{options['lake']}/checkpoint")
    writing.trigger(availableNow=True).start(_place(options)).awaitTermination()


def _value(options: dict[str, Any]) -> str:
    if "avro" in options:
        return f"from_avro(substring(value, 6), '{options['avro']}', map('mode', 'PERMISSIVE')) AS v"
    return f"from_json(CAST(value AS string), '{options['schema']}') AS v"


def to_topic(spark: SparkSession, options: dict[str, Any]) -> None:
    rows = spark.read.parquet(options["path"])
    key = f"to_json(struct({options['key']})) AS key"
    messages = rows.selectExpr(key, "to_json(struct(*)) AS value")
    writer = messages.write.format("kafka").option("kafka.bootstrap.servers", options["brokers"])
    writer.option("kafka.compression.type", "lz4").option("topic", options["topic"]).save()


def deletes(spark: SparkSession, options: dict[str, Any]) -> None:
    """Reads all keys and deletes the rows whose key is missing."""
    keys = _jdbc(spark, options, f"(SELECT {options['key']} FROM {options['table']}) AS keys")
    target = DeltaTable.forPath(spark, _place(options)).alias("t")
    merging = target.merge(keys.alias("s"), f"t.{options['key']} = s.{options['key']}")
    merging.whenNotMatchedBySourceDelete().execute()


def _jdbc(spark: SparkSession, options: dict[str, Any], table: str) -> DataFrame:
    properties = {**_access(options), "fetchsize": "20000", "preferTimestampNTZ": "true"}
    return spark.read.jdbc(options["url"], table, properties=properties)


def _access(options: dict[str, Any]) -> dict[str, str]:
    """PostgreSQL's, unless ``options`` name another driver and the variable that has its password."""
    return {
        "user": options["user"],
        "password": os.environ[options.get("secret", "BENCH_PASSWORD")],
        "driver": options.get("driver", "org.postgresql.Driver"),
    }


def _place(options: dict[str, Any]) -> str:
    return f"{options['lake']}/{options['name']}"


def main(task: str, options: str, class_path: str) -> None:
    bulks = (bulk, csv, csv_to_iceberg, delta_to_jdbc, parquet)
    tasks = {each.__name__: each for each in (*bulks, create, merge, scd2, topic, to_topic, deletes)}
    spark = (
        SparkSession.builder.master("local[*]")
        .config("spark.driver.memory", "4g")
        .config("spark.driver.extraClassPath", class_path)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", str(os.cpu_count()))
        .config("spark.databricks.delta.snapshotPartitions", str(os.cpu_count()))
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .getOrCreate()
    )
    tasks[task](spark, json.loads(options))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
