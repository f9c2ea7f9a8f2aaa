"""Text files that are compressed: read to their end or refused by name, whichever codec, format and reader it is."""

from __future__ import annotations

import bz2
import gzip
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import fsspec
import pytest
import zstandard

from flowctl.connectors.files.compressed import open_bytes
from flowctl.errors import TableError
from tests.connectors.reading import describe, files, spark_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

COMPRESS: Mapping[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "zst": zstandard.compress,
}
LINES = "".join(f"{number * 7919 % 10007},é\n" for number in range(20_000)).encode()
NOT_WHOLE = "is not compressed as its name indicates, or is incomplete"
#: A frame of zstd that has no text, as `pzstd` writes it.
SKIPPED = b"\x50\x2a\x4d\x18\x04\x00\x00\x00skip"

of_each_codec = pytest.mark.parametrize("ending", COMPRESS)


def text_of(path: Path, content: bytes) -> bytes:
    path.write_bytes(content)
    with open_bytes(fsspec.filesystem("file"), str(path), 1 << 16) as stream:
        return stream.read()


@of_each_codec
def test_all_parts_of_a_file_are_read(tmp_path: Path, ending: str) -> None:
    compress, path = COMPRESS[ending], tmp_path / f"T.CSV.{ending.upper()}"
    assert text_of(path, compress(LINES)) == LINES
    assert text_of(path, compress(b"a,b\n1,") + compress(LINES)) == b"a,b\n1," + LINES
    if ending == "zst":
        assert text_of(path, SKIPPED + compress(b"a,b\n") + SKIPPED + compress(LINES)) == b"a,b\n" + LINES


@of_each_codec
@pytest.mark.parametrize("left", [1, 10, -1000, -1], ids=lambda left: f"{left} bytes")
def test_a_file_that_is_cut_off_is_not_read_to_its_end(tmp_path: Path, ending: str, left: int) -> None:
    compress, path = COMPRESS[ending], tmp_path / f"t.csv.{ending}"
    cut = compress(LINES)[:left]
    for content in (cut, compress(LINES) + cut) if ending == "zst" else (cut,):
        with pytest.raises((OSError, EOFError)) as refused:
            text_of(path, content)
        assert getattr(refused.value, "errno", None) is None, "an error of the disk has a number"


def test_an_error_of_the_store_stays_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_bytes(fsspec.filesystem("file"), str(tmp_path / "t.csv.zst"), 1 << 16)


@pytest.mark.long_on_spark
@of_each_codec
@pytest.mark.parametrize("form", ["csv", "jsonl", "bad rows"])
def test_a_file_that_is_cut_off_is_named(spark: SparkSession, inbox: Path, source: Any, ending: str, form: str) -> None:
    name, lines = ("t.jsonl", b'{"a":%d}\n') if form == "jsonl" else ("t.csv", b"%d\n")
    text = b"".join(lines % (number * 7919 % 10007) for number in range(20_000))
    whole = COMPRESS[ending](text if form == "jsonl" else b"a\n" + text)
    (inbox / f"{name}.{ending}").write_bytes(whole)
    rules = {"on_fail": "quarantine"} if form == "bad rows" else {}
    relation = files(f"*.{ending}", type=name[2:], schema={"a": "int"}, **rules)
    assert len(spark_rows(spark, source, relation)) == 20_000
    (inbox / f"{name}.{ending}").write_bytes(whole[: len(whole) * 3 // 4])
    with pytest.raises(TableError, match=rf"{name}\.{ending} {NOT_WHOLE}") as refused:
        spark_rows(spark, source, relation)
    assert refused.value.hint == "Replace it, or leave it out of the pattern in `from`"


@pytest.mark.long_on_spark
def test_what_follows_a_frame_of_zstd_is_named(spark: SparkSession, inbox: Path, source: Any) -> None:
    (inbox / "t.csv.zst").write_bytes(zstandard.compress(b"a\n" + LINES.replace(b",", b" ")) + b"more")
    with pytest.raises(TableError, match=rf"t\.csv\.zst {NOT_WHOLE}"):
        spark_rows(spark, source, files("*.csv.zst"))


@of_each_codec
def test_a_header_that_is_no_such_compression_stops_the_plan(inbox: Path, source: Any, ending: str) -> None:
    (inbox / f"t.csv.{ending}").write_bytes(b"id,name\n1,x\n")
    with pytest.raises(TableError, match=rf"^t\.csv\.{ending} {NOT_WHOLE}"):
        describe(source, files(f"*.csv.{ending}"))


@pytest.mark.parametrize("name", ["t.csv.zip", "t.csv.XZ", "t.lz4", "t.tar.gz"])
@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_files_of_another_compression_are_refused_by_name(inbox: Path, source: Any, name: str, form: str) -> None:
    (inbox / "a.txt").write_text('{"id": 1}\n')
    (inbox / name).write_bytes(b"id\n1\n")
    given = {"type": form, "schema": {"id": "int"}} if form == "jsonl" else {"type": form}
    for pattern in ("t.*", name):
        with pytest.raises(TableError, match=rf"^{name} is compressed as \.\w+; text files are read as") as refused:
            describe(source, files(pattern, **given))
        assert refused.value.hint.startswith("Write it in one of these forms")
