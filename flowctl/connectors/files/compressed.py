"""Text files that are compressed as a whole, and how all that reads them opens them.

Pickled by value, as :mod:`flowctl.connectors.files.parts` is.
"""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any, cast

CODECS: Mapping[str, str] = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}


def codec_of(path: str) -> str | None:
    """How a file is compressed, by its name: gzip, bz2 or zstd; None if it is not."""
    return next((codec for ending, codec in CODECS.items() if path.lower().endswith(ending)), None)


def is_compressed(path: str) -> bool:
    return codec_of(path) is not None


def open_bytes(system: Any, path: str, block_bytes: int) -> io.BufferedReader:
    """The decompressed bytes of a file of ``system``, an fsspec file system; ``block_bytes`` are requested from it at a
    time. Reading raises ``EOFError``, ``zlib.error``, or an ``OSError`` without ``errno``, for a file that is not
    compressed as its name indicates, or is incomplete."""
    import pyarrow as pa

    codec = codec_of(path)
    if codec == "zstd":  # fsspec's reader takes the end of a file that is cut off for the end of its text
        raw = pa.CompressedInputStream(pa.PythonFile(system.open(path, "rb", block_size=block_bytes), "r"), codec)
    else:
        raw = system.open(path, "rb", compression=codec, block_size=block_bytes)
    # Buffered, because fsspec's own readline reads a block for each line.
    return io.BufferedReader(cast(Any, raw))
