"""Which files a pattern names: names that no state can hold, and folders that were meant as patterns."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from flowctl.connectors.files.gaps import misplaced_folders
from flowctl.connectors.files.listing import shown_path
from flowctl.connectors.survey import Survey
from flowctl.errors import TableError
from tests.connectors.files.test_object_store import inbox as inbox_in_store
from tests.connectors.reading import describe, files, spark_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_TEXT = b"x\xff.csv"


def test_a_name_that_is_no_text_is_shown_by_its_bytes() -> None:
    assert [shown_path(os.fsdecode(name)) for name in (NO_TEXT, "é \\x.csv".encode())] == [r"x\xff.csv", "é \\x.csv"]


@pytest.mark.parametrize("given", [{}, {"source_file": True}])
@pytest.mark.parametrize("folder", [b"", b"\xe9/"], ids=["file", "folder"])
def test_a_file_whose_name_is_no_text_stops_its_table(
    inbox: Path, source: Any, given: dict[str, Any], folder: bytes
) -> None:
    file = inbox / os.fsdecode(folder + NO_TEXT)
    file.parent.mkdir(exist_ok=True)
    file.write_text("id\n1\n")
    relation = files("**/*.csv", **given)
    for observe in (
        lambda: source.describe([relation]),
        lambda: source.discover(("**/*.csv",)),
    ):
        with pytest.raises(TableError, match=r"x\\xff\.csv has a name that is not UTF-8$") as refused:
            observe()
        assert refused.value.hint == "Rename it, or leave it out of the pattern in `from`"


@pytest.mark.long_on_spark
def test_others_are_read_beside_it(spark: SparkSession, inbox: Path, source: Any) -> None:
    (inbox / "y.csv").write_text("id\n2\n")
    (inbox / os.fsdecode(NO_TEXT)).write_text("id\n1\n")
    assert spark_rows(spark, source, files("y*.csv", source_file=True)) == [{"id": "2", "_source_file": "y.csv"}]
    survey: Survey = source.survey(lambda object: True)
    assert [(one.object.parts[0], one.details.refused) for one in survey.tables] == [
        ("y.csv", ""),
        (r"x\xff.csv", "its name is not UTF-8. Rename it"),
    ]
    missing = source.why_missing(files("nothing.csv"))
    assert missing.hint.endswith(r" has x\xff.csv, y.csv")


@pytest.mark.parametrize(
    ("paths", "pattern"),
    [
        (["a/1.csv", "a/2.csv", "a/_part.parquet"], "a/*.csv"),
        (["a/1.csv.gz"], "a/*.csv.gz"),
        (["a/1.csv", "a/2.csv.gz"], "a/*"),
        (["a/1.csv", "a/2.parquet", "a/3.txt"], "a/*.csv"),
        (["a/1.txt", "a/2.txt"], "a/*.txt"),
        (["a/b/1.csv"], "a/**/*.csv"),
        (["a/b/_1.csv"], "a/*"),
    ],
)
@pytest.mark.parametrize("named", ["a", "a/"])
def test_a_folder_is_called_one_with_the_pattern_of_its_files(
    inbox: Path, source: Any, paths: list[str], pattern: str, named: str
) -> None:
    for path in paths:
        (inbox / path).parent.mkdir(parents=True, exist_ok=True)
        (inbox / path).write_bytes(gzip.compress(b"id\n1\n") if path.endswith(".gz") else b"id\n1\n")
    relation = files(named, type="csv")
    assert source.describe([relation]) == {relation: None}
    missing = source.why_missing(relation)
    assert missing.reason == f"{inbox}/{named} is a folder, not a file"
    assert missing.hint == f"Write `{pattern}` in `from`, for the files in it"
    if not paths[0].startswith("a/b/_"):
        assert describe(source, files(pattern, type="csv")).columns[0].name == "id"


def test_a_folder_of_a_store(s3_server: Any, s3_bucket: str) -> None:
    with inbox_in_store(s3_server, s3_bucket) as (store, source):
        store.pipe_file(f"{s3_bucket}/inbox/a/1.csv", b"id\n1\n")
        missing = source.why_missing(files("a", type="csv"))
        assert (missing.reason, missing.hint) == (
            f"s3://{s3_bucket}/inbox/a is a folder, not a file",
            "Write `a/*.csv` in `from`, for the files in it",
        )
        assert source.why_missing(files("b", type="csv")).reason == f"no file matches s3://{s3_bucket}/inbox/b"


@pytest.mark.parametrize(
    ("pattern", "meant"), [("data/**.csv", "data/**/*.csv"), ("data/**/x**.csv", "data/**/x*.csv"), ("***/a", "**/*/a")]
)
def test_two_stars_beside_other_characters_are_refused(inbox: Path, source: Any, pattern: str, meant: str) -> None:
    (inbox / "a.csv").write_text("id\n1\n")
    assert misplaced_folders(meant) is None
    for observe in (lambda: source.describe([files(pattern)]), lambda: source.discover((pattern,))):
        with pytest.raises(TableError, match=r"`\*\*` stands for folders") as refused:
            observe()
        assert refused.value.hint == f"Write {meant}"
