"""Deletion vectors, which mark the deleted rows of a file, read and written without an engine.

Source: Delta protocol, *Deletion Vectors*: a 64-bit roaring bitmap of row numbers, in its portable form after a magic
number. One file holds several, each between its size and its checksum.
"""

from __future__ import annotations

import base64
import string
import struct
import uuid
import zlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from flowctl.connectors.delta.location import TableLocation
from flowctl.errors import TableError

if TYPE_CHECKING:
    from pyroaring import BitMap64

#: ``storageType``, ``pathOrInlineDv``, ``offset``, ``sizeInBytes`` and ``cardinality``.
Descriptor = Mapping[str, Any]

_MAGIC = struct.pack("<I", 1681511377)
_FILE_VERSION = b"\x01"
#: Z85 is Python's base85 with other digits.
_PYTHON = string.digits + string.ascii_uppercase + string.ascii_lowercase + "!#$%&()*+-;<=>?@^_`{|}~"
_Z85 = string.digits + string.ascii_lowercase + string.ascii_uppercase + ".-:+=^!/*?&<>()[]{}@%$#"
_TO_Z85, _FROM_Z85 = str.maketrans(_PYTHON, _Z85), str.maketrans(_Z85, _PYTHON)
_UUID_DIGITS = 20
#: The first call builds Python's table of digits, and a call in another thread meanwhile finds it empty: "bad base85
#: character at position 0". Files are read by several threads.
base64.b85decode(b"")


def read(location: TableLocation, descriptor: Descriptor) -> BitMap64:
    """The numbers of the deleted rows; :class:`TableError` if they cannot be read."""
    from pyroaring import BitMap64

    size = int(descriptor["sizeInBytes"])
    if descriptor["storageType"] == "i":
        data = _decoded(descriptor["pathOrInlineDv"])[:size]
    else:
        path, start = path_of(location, descriptor), int(descriptor.get("offset") or 0)
        stored = location.file_system().cat_file(path, start=start, end=start + 4 + size + 4)
        length, data, checksum = stored[:4], stored[4 : 4 + size], stored[4 + size :]
        if length != struct.pack(">I", size) or checksum != struct.pack(">I", zlib.crc32(data)):
            raise TableError(
                f"{path} is damaged: a deletion vector's size or checksum does not match", hint="Restore it"
            )
    if data[:4] != _MAGIC:
        raise TableError(
            f"{location.url} has a deletion vector of a format that flowctl does not know",
            hint="Rewrite its files without deletion vectors: REORG TABLE … APPLY (PURGE)",
        )
    rows = BitMap64.deserialize(data[4:])
    if len(rows) != int(descriptor["cardinality"]):
        raise TableError(
            f"{location.url} has a deletion vector with {len(rows):,} rows, but the log has another number"
        )
    return rows


def write(location: TableLocation, vectors: Mapping[str, BitMap64]) -> dict[str, Descriptor]:
    """Writes the vectors into one new file, which no reader sees yet. Returns their descriptors by the same keys."""
    name = uuid.uuid4()
    content = bytearray(_FILE_VERSION)
    descriptors: dict[str, Descriptor] = {}
    for path, rows in vectors.items():
        data = _MAGIC + rows.serialize()
        descriptors[path] = {
            "storageType": "u",
            "pathOrInlineDv": base64.b85encode(name.bytes).decode().translate(_TO_Z85),
            "offset": len(content),
            "sizeInBytes": len(data),
            "cardinality": len(rows),
        }
        content += struct.pack(">I", len(data)) + data + struct.pack(">I", zlib.crc32(data))
    location.write_file(f"deletion_vector_{name}.bin", bytes(content))
    return descriptors


def path_of(location: TableLocation, descriptor: Descriptor) -> str:
    """The path of the file that holds the vector, possibly with others. Not for vectors stored inline in the log."""
    where = str(descriptor["pathOrInlineDv"])
    if descriptor["storageType"] == "p":
        return unquote(where)
    prefix, digits = where[:-_UUID_DIGITS], where[-_UUID_DIGITS:]
    folder = f"{location.url}/{prefix}" if prefix else location.url
    return f"{folder}/deletion_vector_{uuid.UUID(bytes=_decoded(digits))}.bin"


def _decoded(digits: str) -> bytes:
    return base64.b85decode(digits.translate(_FROM_Z85))
