"""The servers of a case, started and ended with it, and their process ids, to measure their CPU time."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from bench.case import Case, World
from tests.services import kafka, mariadb, postgres, s3, schemas, spark
from tests.services.processes import children_of

#: Variables of the environment whose values no message may show.
SECRETS = ("BENCH_PASSWORD", "BENCH_MYSQL_PASSWORD", "AWS_SECRET_ACCESS_KEY")
#: The bucket for a case's files.
BUCKET = "bench"

_KEPT = "bench_kept"
_TABLES = """
    SELECT schemaname, tablename FROM pg_tables WHERE schemaname NOT IN ('pg_catalog', 'information_schema')
"""


@dataclass(frozen=True)
class Running:
    world: World
    pids: dict[str, int]


@contextmanager
def running(case: Case, world: World) -> Iterator[Running]:
    """``world`` with the servers' addresses. Passwords and keys go into this process's environment, and so to all child
    processes."""
    pids: dict[str, int] = {}
    with ExitStack() as stack:
        if "postgres" in case.needs:
            parts = urlsplit(stack.enter_context(postgres.server()))
            assert parts.username is not None and parts.password is not None
            os.environ |= {"BENCH_PASSWORD": parts.password, "PGPASSWORD": parts.password}
            url = f"postgresql://{parts.username}@{parts.hostname}:{parts.port}{parts.path}"
            world = replace(world, postgres=url)
            pids["PostgreSQL"] = _postmaster(url)
        if "mysql" in case.needs:
            parts = urlsplit(stack.enter_context(_mariadb()))
            assert parts.password is not None
            os.environ["BENCH_MYSQL_PASSWORD"] = parts.password
            world = replace(world, mysql=f"mysql://{parts.username}@{parts.hostname}:{parts.port}{parts.path}")
            [pids["MariaDB"]] = children_of(os.getpid(), "mariadbd")
        if "s3" in case.needs:
            store = stack.enter_context(s3.versitygw())
            store.make_bucket(BUCKET)
            os.environ |= {"AWS_ACCESS_KEY_ID": store.access_key, "AWS_SECRET_ACCESS_KEY": store.secret_key}
            os.environ |= {"AWS_REGION": store.region, "AWS_ENDPOINT_URL": store.endpoint}
            world = replace(world, s3=store.endpoint)
            [pids["VersityGW"]] = children_of(os.getpid(), "versitygw")
        if "connect" in case.needs:
            world = replace(world, connect=stack.enter_context(spark.connect_server()))
            pids["Spark Connect"] = _connect_jvm()
        if "kafka" in case.needs:
            broker = stack.enter_context(kafka.broker())
            world = replace(world, kafka=stack.enter_context(broker.started()))
            [pids["Kafka"]] = children_of(os.getpid(), "java")
        if "registry" in case.needs:
            registry = stack.enter_context(schemas.registry())
            world = replace(world, registry=stack.enter_context(registry.started()))
        yield Running(world, pids)


@contextmanager
def _mariadb() -> Iterator[str]:
    """The tests' own server, with as much memory for pages as PostgreSQL has, and without a binary log."""
    settings = {"innodb-buffer-pool-size": "128M", "skip-log-bin": "ON"}
    with mariadb.created() as made, made.started(settings) as url:
        yield url


def new_database(url: str, name: str) -> None:
    """Creates an empty database, dropping any of that name."""
    with psycopg.connect(url, autocommit=True) as admin:
        admin.execute(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)'.encode())
        admin.execute(f'CREATE DATABASE "{name}" TEMPLATE template0'.encode())


def keep_tables(url: str) -> None:
    """Copies all tables of a database into a separate schema."""
    with psycopg.connect(url) as connection:
        connection.execute(f"CREATE SCHEMA {_KEPT}")
        for schema, name in connection.execute(_TABLES).fetchall():
            kept = f'{_KEPT}."{schema}.{name}"'
            connection.execute(f'CREATE TABLE {kept} AS TABLE "{schema}"."{name}"'.encode())


def restore_tables(url: str) -> None:
    """Restores the kept rows into the same tables: flowctl rightly treats a recreated table as a different one."""
    with psycopg.connect(url, autocommit=True) as connection:
        query = f"SELECT relname FROM pg_class WHERE relnamespace = '{_KEPT}'::regnamespace AND relkind = 'r'"
        kept = [str(name) for (name,) in connection.execute(query).fetchall()]
        for name in kept:
            schema, _, table = name.partition(".")
            with connection.transaction():
                connection.execute(f'TRUNCATE "{schema}"."{table}"'.encode())
                connection.execute(f'INSERT INTO "{schema}"."{table}" SELECT * FROM {_KEPT}."{name}"'.encode())
        connection.execute("VACUUM ANALYZE")


def _postmaster(url: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute("SHOW data_directory").fetchone()
    assert row is not None
    return int(Path(row[0], "postmaster.pid").read_text().splitlines()[0])


def _connect_jvm() -> int:
    """The JVM that `flowctl spark-server`, a child of this process, has started."""
    [server] = children_of(os.getpid(), Path(sys.executable).name)
    [jvm] = children_of(server, "java")
    return jvm
