"""All cases, in the order of the results."""

from bench.case import Case
from bench.cases import (
    changes,
    from_files,
    many_tables,
    memory,
    postgres_to_delta,
    postgres_to_postgres,
    streams,
    to_topics,
    topics,
    wide,
)

CASES: tuple[Case, ...] = (
    postgres_to_delta.CASE,
    postgres_to_postgres.CASE,
    from_files.SQLITE,
    from_files.CSV,
    from_files.PARQUET,
    wide.CASE,
    changes.MERGE,
    changes.SCD2,
    changes.DELETES,
    streams.INSERTS,
    streams.UPDATES,
    streams.MIXED,
    topics.JSON,
    topics.AVRO,
    to_topics.CASE,
    many_tables.NOTHING_TO_DO,
    many_tables.SMALL_TABLES,
    many_tables.VALIDATE,
    many_tables.PLAN,
    memory.CASE,
)
