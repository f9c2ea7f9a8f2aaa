"""Paths of files and folders as an engine's readers and its Parquet writer take them: exactly one file or folder each,
whatever its name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING
from urllib.parse import quote

from flowctl.engine.session import has_jvm
from flowctl.errors import TableError

if TYPE_CHECKING:
    from pyspark.sql import DataFrameReader, SparkSession

#: Characters that make a path a pattern for Hadoop.
_GLOB = frozenset("\\{}[]*?")
#: Spark's own option for a path that is not a pattern. It works for one path at a time: with several, Spark would read
#: all of them once for each that has a pattern character.
_AS_IT_IS = {"__globPaths__": "false"}
#: For local files with a colon in their names: Hadoop looks for a checksum file next to each, under a name that it then
#: parses as a URL. It cannot have written one.
_WITHOUT_CHECKSUMS = {
    "fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "fs.file.impl.disable.cache": "true",  # only for this read
}


def readers(spark: SparkSession, paths: Sequence[str]) -> Iterator[tuple[DataFrameReader, list[str]]]:
    """All of ``paths``, taken literally, in as few reads as possible: almost always one."""
    if not has_jvm(spark):
        yield spark.read, [_encoded(path) for path in paths]
        return
    usual: list[str] = []
    with_colon: list[str] = []
    for path in paths:
        scheme, _, place = path.partition("://")
        is_unchecked = scheme == "file" and ":" in place.rpartition("/")[2]
        if ":" in place and not _GLOB.isdisjoint(place):  # escaped, the colon would still end a URL's scheme
            _require_classic(spark, path)
            yield spark.read.options(**_AS_IT_IS, **(_WITHOUT_CHECKSUMS if is_unchecked else {})), [path]
        elif is_unchecked:
            with_colon.append(path)
        else:
            usual.append("".join(f"\\{char}" if char in _GLOB else char for char in path))
    if with_colon:
        yield spark.read.options(**_WITHOUT_CHECKSUMS), with_colon
    if usual:
        yield spark.read, usual


def to_write(spark: SparkSession, path: str) -> str:
    """``path`` for a write, where Hadoop knows no patterns."""
    return path if has_jvm(spark) else _encoded(path)


def _encoded(path: str) -> str:
    """For Sail's Parquet reader and writer, which decode a URL. What is not encoded they take for a pattern or for
    another path, and find no rows there without an error (tested with 0.7.2)."""
    scheme, separator, place = path.partition("://")
    return f"{scheme}{separator}{quote(place, safe='/@:=~+', errors='surrogateescape')}"


def _require_classic(spark: SparkSession, path: str) -> None:
    """Spark Connect lower-cases option names, and Spark then does not recognise this one."""
    from pyspark.sql import SparkSession as ClassicSession

    if not isinstance(spark, ClassicSession):
        what = "a colon and one of \\ { } [ ] * ? in its path"
        raise TableError(f"Spark Connect cannot read {path}, which has {what}", hint=_ODD_PATH_HINT)


_ODD_PATH_HINT = "Rename the file or its folder, or run this flow with spark.url local[*]"
