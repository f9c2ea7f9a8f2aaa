"""What a stream is called in the source, by the spec."""

from __future__ import annotations

import zlib

from flowctl.spec.spec import StreamSpec

#: Derived numbers have these highest bits: above what people choose.
_BASE = 0x60000000


def server_id_of(stream: StreamSpec) -> int:
    """Of the replica that the stream is for the server."""
    chosen = stream.options.get("server_id")
    return int(chosen) if chosen else _BASE | zlib.crc32(f"{stream.flow}/{stream.name}".encode()) & 0x0FFFFFFF


def wants_files(stream: StreamSpec) -> bool:
    return stream.options.get("position") == "file"
