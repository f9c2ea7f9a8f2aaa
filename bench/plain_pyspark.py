"""The peer: what one would write by hand. ``plain_pyspark.py JDBC_URL USER PASSWORD TABLE FOLDER JARS``"""

import sys

from pyspark.sql import SparkSession


def main(url: str, user: str, password: str, table: str, folder: str, jars: str) -> None:
    spark = (
        SparkSession.builder.master("local[*]")
        .config("spark.driver.memory", "4g")
        .config("spark.driver.extraClassPath", jars)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension")
        .config("spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog")
        .getOrCreate()
    )
    properties = {"user": user, "password": password, "driver": "org.postgresql.Driver", "fetchsize": "20000"}
    spark.read.jdbc(url, table, properties=properties).write.format("delta").mode("overwrite").save(folder)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
