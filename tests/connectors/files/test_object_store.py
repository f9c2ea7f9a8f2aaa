"""Files in an object store: read where executors open them themselves, and not more of them than is needed."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
import s3fs

from flowctl.connectors import registry
from flowctl.connectors.base import OpenContext
from flowctl.connectors.files.listing import FileRoot, matching
from flowctl.diagnostics import Mark
from flowctl.engine.session import has_own_workers
from flowctl.model.position import FileStamp
from flowctl.spec.spec import Connection
from tests.connectors.files.test_source import position
from tests.connectors.reading import describe, files, spark_rows
from tests.services.gcs import GoogleServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def inbox(server: Any, bucket: str) -> Iterator[tuple[s3fs.S3FileSystem, Any]]:
    """The folder ``inbox``, as another client writes it, and as flowctl's source."""
    store = s3fs.S3FileSystem(
        key=server.access_key,
        secret=server.secret_key,
        client_kwargs={"endpoint_url": server.endpoint},
        skip_instance_cache=True,
    )
    connection = Connection("inbox", "files", {"path": f"s3://{bucket}/inbox"}, Mark("flow.yaml", 1))
    with registry.open(connection, OpenContext(storage={f"s3://{bucket}": server.storage()})) as connector:
        yield store, connector.source


def test_objects_whose_names_are_folders_too_or_have_empty_parts_are_found(moto: Any) -> None:
    """VersityGW keeps objects as files and refuses such names; S3 takes them, as moto does."""
    s3_bucket = f"folders-{os.getpid()}"
    moto.client().create_bucket(Bucket=s3_bucket)
    names = ["1.csv", "1.csv/2.csv", "a//3.csv", "a/4.csv", "a/5.json", "b/c/6.csv"]
    with inbox(moto, s3_bucket) as (store, source):
        for name in names:
            store.call_s3("put_object", Bucket=s3_bucket, Key=f"inbox/{name}", Body=b"id\n1\n")
        store.call_s3("put_object", Bucket=s3_bucket, Key="inbox/a/", Body=b"")  # as consoles make a folder
        wanted = {
            "**/*.csv": ["1.csv", "1.csv/2.csv", "a//3.csv", "a/4.csv", "b/c/6.csv"],
            "**": names,
            "*.csv": ["1.csv"],
            "1.csv": ["1.csv"],
            "*/*.csv": ["1.csv/2.csv", "a/4.csv"],
            "[ab]/?.*": ["a/4.csv", "a/5.json"],
            "b/*/6.csv": ["b/c/6.csv"],
            "none/**": [],
            "none/*": [],
            "none.csv": [],
        }
        found = {pattern: [one.path for one in matching(source.root, pattern)] for pattern in wanted}
    assert found == wanted


def test_a_changed_file(spark: SparkSession, s3_server: Any, s3_bucket: str) -> None:
    """Spark over S3 is shown by the state and Delta suites."""
    with inbox(s3_server, s3_bucket) as (store, source):
        store.pipe_file(f"{s3_bucket}/inbox/1.csv", b"id,v\n1,2\n")
        before = position(source, files("*.csv"))
        store.pipe_file(f"{s3_bucket}/inbox/1.csv", b"id,v\n1,3\n")
        after = position(source, files("*.csv"))
        if has_own_workers(spark):
            assert spark_rows(spark, source, files("*.csv")) == [{"id": "1", "v": "3"}]
    assert [stamp.path for stamp in before.files] == ["1.csv"]
    assert before != after


@pytest.mark.server
@pytest.mark.full
def test_metadata_of_google_changes_no_file(gcs_server: GoogleServer) -> None:
    """Its ETag does change, as it does when a lifecycle rule moves the object to another class."""
    url = gcs_server.make_bucket(f"generations-{os.getpid()}")
    bucket = gcs_server.client().bucket(url.removeprefix("gs://"))
    bucket.blob("inbox/1.csv").upload_from_string(b"id\n1\n")
    connection = Connection("inbox", "files", {"path": f"{url}/inbox"}, Mark("flow.yaml", 1))
    with registry.open(connection, OpenContext(storage={url: gcs_server.storage()})) as connector:
        source: Any = connector.source

        def seen(pattern: str, read: Mapping[str, FileStamp] | None = None) -> FileStamp:
            (stamp,) = matching(source.root, pattern, read)
            return stamp

        blob = bucket.get_blob("inbox/1.csv")
        first, older = seen("*.csv"), FileStamp("1.csv", 5, blob.etag.strip('"'))
        assert first.tag == str(blob.generation)
        assert seen("*.csv", {"1.csv": older}) == older  # as an older flowctl recorded it
        blob.metadata = {"seen-by": "another"}
        blob.patch()
        assert [seen("*.csv"), seen("**"), seen("1.csv")] == [first] * 3
        bucket.blob("inbox/1.csv").upload_from_string(b"id\n2\n")
        changed = seen("*.csv")
        assert changed.tag != first.tag and seen("*.csv", {"1.csv": older}) == changed


def test_a_generation_is_the_tag_of_a_file_and_the_former_one_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    """As gcsfs lists objects, without a server."""
    root = FileRoot("gs://b/inbox", {})

    def list_objects(etag: str, generation: str) -> None:
        info = {"name": "b/inbox/1.csv", "type": "file", "size": 5, "etag": etag, "generation": generation}
        system: Any = SimpleNamespace(ls=lambda *_, **__: [info])
        monkeypatch.setattr(FileRoot, "file_system", lambda _: (system, "b/inbox"))

    list_objects("CJ1", "1")
    older = FileStamp("1.csv", 5, "CJ1")
    assert matching(root, "*.csv", {"1.csv": older}) == (older,)
    list_objects("CJ2", "1")
    assert matching(root, "*.csv") == (FileStamp("1.csv", 5, "1"),)
    assert matching(root, "*.csv", {"1.csv": older}) == (FileStamp("1.csv", 5, "1"),)


@pytest.mark.parametrize("ending", ["", ".gz", ".zst"])
def test_a_header_is_all_that_a_plan_reads(
    s3_server: Any, s3_bucket: str, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    import gzip
    import random

    import zstandard

    rows = b"".join(b"%d,%d\n" % (id, random.getrandbits(64)) for id in range(50_000))
    content = b"id,v\n" + rows
    fetched: list[int] = []
    ranges = s3fs.S3File._fetch_range

    def counted(file: Any, start: int, end: int) -> Any:
        fetched.append(end - start)
        return ranges(file, start, end)

    monkeypatch.setattr(s3fs.S3File, "_fetch_range", counted)
    with inbox(s3_server, s3_bucket) as (store, source):
        compress = {"": bytes, ".gz": gzip.compress, ".zst": zstandard.compress}[ending]
        stored = compress(content)
        store.pipe_file(f"{s3_bucket}/inbox/1.csv{ending}", stored)
        info = describe(source, files(f"*.csv{ending}"))
    assert [column.name for column in info.columns] == ["id", "v"]
    assert 0 < sum(fetched) < 200_000 < len(stored)
