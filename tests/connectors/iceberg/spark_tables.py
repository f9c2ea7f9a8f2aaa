"""Writes Iceberg tables with Spark, and what Spark reads of each of their snapshots: a program of its own, because its
Spark has other jars than flowctl's.

    python -m tests.connectors.iceberg.spark_tables WAREHOUSE JARS RESULT
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

_MERGE_ON_READ = ", ".join(
    f"'write.{what}.mode' = 'merge-on-read'" for what in ("delete", "update", "merge")
) + ", 'format-version' = '2'"  # fmt: skip

_VALUES = """
    CREATE TABLE c.db.kinds USING iceberg AS SELECT * FROM VALUES
    (1, 127Y, 2147483647, 9223372036854775807L, float('0.1'), double('-Infinity'), 1.5BD, 'a', X'00FF',
     DATE'0001-01-01',
     TIMESTAMP'1900-01-01 00:00:00.000001Z', TIMESTAMP_NTZ'9999-12-31 23:59:59.999999', true,
     array(1, null), named_struct('a', 1L, 'b', array('x'))),
    (2, null, null, null, double('NaN'), null, null, '', X'', null, null, null, null, array(), null)
    AS t (id, y, i, l, f, d, n, s, x, day, at, local, b, items, parts)
"""

#: What is done to each table after it was created; SQL, and names of the functions below.
HISTORIES: dict[str, list[str]] = {
    "kinds": [_VALUES],
    "merged": [
        f"CREATE TABLE @t (id BIGINT, note STRING) USING iceberg TBLPROPERTIES ({_MERGE_ON_READ})",
        "INSERT INTO @t SELECT id, concat('first ', id) FROM range(20)",
        "DELETE FROM @t WHERE id IN (3, 4)",
        "UPDATE @t SET note = 'second' WHERE id < 3",
        """MERGE INTO @t USING (SELECT id, 'third' AS note FROM range(18, 23)) AS s ON @t.id = s.id
           WHEN MATCHED AND s.id = 18 THEN DELETE WHEN MATCHED THEN UPDATE SET note = s.note
           WHEN NOT MATCHED THEN INSERT *""",
        "CALL c.system.rewrite_position_delete_files(table => '@n', options => map('rewrite-all', 'true'))",
        "INSERT INTO @t VALUES (100, null)",
        "CALL c.system.rewrite_data_files(table => '@n', options => map('rewrite-all', 'true'))",
        "DELETE FROM @t WHERE note IS NULL",
        "INSERT OVERWRITE @t SELECT id, 'again' FROM range(5)",
    ],
    "copied": [
        "CREATE TABLE @t (id BIGINT, note STRING) USING iceberg",
        "INSERT INTO @t SELECT id, concat('first ', id) FROM range(20)",
        "UPDATE @t SET note = 'second' WHERE id < 3",
        "DELETE FROM @t WHERE id = 5",
        "CALL c.system.rewrite_data_files(table => '@n', options => map('rewrite-all', 'true'))",
        "INSERT INTO @t VALUES (30, 'new')",
    ],
    "evolved": [
        f"""CREATE TABLE @t (id INT, note STRING, at TIMESTAMP, amount DECIMAL(6, 2), more STRUCT<a: INT, b: STRING>)
            USING iceberg PARTITIONED BY (days(at)) TBLPROPERTIES ({_MERGE_ON_READ})""",
        """INSERT INTO @t SELECT CAST(id AS INT), concat('n', id), timestamp_seconds(id * 40000), id / 3,
           named_struct('a', CAST(id AS INT), 'b', 'x') FROM range(9)""",
        "ALTER TABLE @t ALTER COLUMN id TYPE BIGINT",
        "ALTER TABLE @t ALTER COLUMN amount TYPE DECIMAL(18, 2)",
        "ALTER TABLE @t ADD PARTITION FIELD bucket(3, id)",
        "INSERT INTO @t VALUES (9000000000, 'n', TIMESTAMP'2026-01-01', 1234567.89, null)",
        "ALTER TABLE @t RENAME COLUMN note TO text",
        "ALTER TABLE @t RENAME COLUMN more.a TO c",
        "ALTER TABLE @t ADD COLUMN more.d DOUBLE",
        "ALTER TABLE @t ALTER COLUMN text FIRST",
        "DELETE FROM @t WHERE id = 4",
        "ALTER TABLE @t DROP PARTITION FIELD days(at)",
        "ALTER TABLE @t ADD PARTITION FIELD truncate(2, text)",
        "INSERT INTO @t VALUES ('z🦆z', 11, TIMESTAMP'2026-01-02', 1.5, named_struct('c', 1, 'b', 'y', 'd', 0.5D))",
        "UPDATE @t SET amount = 0 WHERE id IN (11, 1)",
    ],
    "upserted": [
        "CREATE TABLE @t (id BIGINT, note STRING) USING iceberg TBLPROPERTIES ('format-version' = '2')",
        "INSERT INTO @t SELECT id, concat('first ', id) FROM range(6)",
        "INSERT INTO @t VALUES (7, null), (8, null)",
        "delete_equal",
        "INSERT INTO @t VALUES (1, 'first 1'), (9, null)",
    ],
    "upserted_parts": [
        """CREATE TABLE @t (id BIGINT, note STRING) USING iceberg PARTITIONED BY (bucket(4, id))
           TBLPROPERTIES ('format-version' = '2')""",
        "INSERT INTO @t SELECT id, concat('first ', id) FROM range(6)",
        "INSERT INTO @t VALUES (7, null), (1, 'twice')",
        "delete_equal",
        "INSERT INTO @t VALUES (1, 'third')",
    ],
    "hive": [
        # Moments in 96 bits, as Spark writes them; as nanoseconds, these would be others.
        """CREATE TABLE spark_catalog.default.hive (id BIGINT, at TIMESTAMP, part STRING) USING parquet
           PARTITIONED BY (part)""",
        """INSERT INTO spark_catalog.default.hive VALUES
           (1, TIMESTAMP'1500-06-01 12:00:00.123456', 'a b'), (2, TIMESTAMP'2300-01-01', 'ü/%'), (4, null, 'ü/%')""",
        "CREATE TABLE @t (id BIGINT, at TIMESTAMP, part STRING) USING iceberg PARTITIONED BY (part)",
        "CALL c.system.add_files(table => '@n', source_table => 'spark_catalog.default.hive')",
        "INSERT INTO @t VALUES (3, TIMESTAMP'2026-01-01', null)",
    ],
}


def main(warehouse: str, jars: str, result: str) -> None:
    spark = session(warehouse, jars)
    found: dict[str, dict[int, list[tuple[Any, ...]]]] = {}
    for name, steps in HISTORIES.items():
        for step in steps:
            if step == "delete_equal":
                delete_equal(spark, f"c.db.{name}")
            else:
                spark.sql(step.replace("@t", f"c.db.{name}").replace("@n", f"db.{name}"))
        listed = spark.sql(f"SELECT snapshot_id FROM c.db.{name}.snapshots ORDER BY committed_at").collect()
        found[name] = {
            id: rows(spark.sql(f"SELECT * FROM c.db.{name} VERSION AS OF {id}").collect()) for (id,) in listed
        }
    Path(result).write_bytes(pickle.dumps(found))


def session(warehouse: str, jars: str) -> SparkSession:
    catalog = "spark.sql.catalog.c"
    settings = {
        "spark.driver.extraClassPath": jars,
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        catalog: "org.apache.iceberg.spark.SparkCatalog",
        f"{catalog}.type": "hadoop",
        f"{catalog}.warehouse": warehouse,
        "spark.sql.warehouse.dir": f"{warehouse}/../spark",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
    }
    builder = SparkSession.builder.master("local[2]")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def delete_equal(spark: SparkSession, name: str) -> None:
    """As Flink deletes: the notes null and "first 1", in every partition that there is."""
    session: Any = spark
    jvm, gateway = session._jvm, session.sparkContext._gateway
    iceberg = jvm.org.apache.iceberg
    table = iceberg.spark.Spark3Util.loadIcebergTable(session._jsparkSession, name)
    field = table.schema().findField("note")
    fields = gateway.new_array(iceberg.types.Types.NestedField, 1)
    fields[0] = field
    schema = iceberg.Schema(fields)
    ids = gateway.new_array(gateway.jvm.int, 1)
    ids[0] = field.fieldId()
    kind = iceberg.FileFormat.PARQUET
    factory = iceberg.data.GenericFileWriterFactory.Builder(table).deleteFileFormat(kind)
    factory = factory.equalityFieldIds(ids).equalityDeleteRowSchema(schema).build()
    places = iceberg.io.OutputFileFactory.builderFor(table, 1, 1).format(kind).build()
    partitions, tasks = {}, table.newScan().planFiles().iterator()
    while tasks.hasNext():
        file = tasks.next().file()
        partitions[file.partition().toString()] = file.copy()
    change = table.newRowDelta()
    for file in partitions.values():
        spec = table.specs().get(file.specId())
        place = places.newOutputFile(spec, file.partition()) if spec.isPartitioned() else places.newOutputFile()
        writer = factory.newEqualityDeleteWriter(place, spec, file.partition())
        for note in (None, "first 1"):
            record = iceberg.data.GenericRecord.create(schema)
            record.setField("note", note)
            writer.write(record)
        writer.close()
        change.addDeletes(writer.toDeleteFile())
    change.commit()
    session.sql(f"REFRESH TABLE {name}")


def rows(found: list[Any]) -> list[tuple[Any, ...]]:
    return [tuple(plain(value) for value in row) for row in found]


def plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return {name: plain(value[name]) for name in value.__fields__}  # type: ignore[attr-defined]
    if isinstance(value, list):
        return [plain(one) for one in value]
    return bytes(value) if isinstance(value, bytearray) else value


if __name__ == "__main__":
    main(*sys.argv[1:])
