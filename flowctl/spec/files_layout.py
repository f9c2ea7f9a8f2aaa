"""How a table is written as files: their format and size."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, get_args

FileFormat = Literal["parquet", "csv", "jsonl", "orc"]
Compression = Literal["none", "snappy", "gzip", "zstd", "bz2"]

FILE_FORMATS: tuple[FileFormat, ...] = get_args(FileFormat)
#: The compressions of each format, the usual one first.
COMPRESSIONS: Mapping[FileFormat, tuple[Compression, ...]] = {
    "parquet": ("snappy", "zstd", "gzip", "none"),
    "orc": ("zstd", "snappy", "none"),
    "csv": ("none", "gzip", "zstd", "bz2"),
    "jsonl": ("none", "gzip", "zstd", "bz2"),
}
#: What compression adds to the name of a file.
_SUFFIXES = {"gzip": ".gz", "zstd": ".zst", "bz2": ".bz2"}


@dataclass(frozen=True)
class FilesLayout:
    """``compression`` None: the usual one of the format. ``file_bytes``: once a file has this size, the next rows begin
    another. The rest is the dialect of CSV; ``null_value`` stands for null, without quotes."""

    format: FileFormat = "parquet"
    compression: Compression | None = None
    file_bytes: int = 256 * 10**6
    header: bool = True
    delimiter: str = ","
    quote: str = '"'
    null_value: str = ""

    @property
    def codec(self) -> Compression:
        return self.compression or COMPRESSIONS[self.format][0]

    @property
    def extension(self) -> str:
        """Of the files' names."""
        return self.format + (_SUFFIXES.get(self.codec, "") if self.is_text else "")

    @property
    def is_text(self) -> bool:
        """Text is compressed as a whole; the other formats compress internally."""
        return self.format in ("csv", "jsonl")
