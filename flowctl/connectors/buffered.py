"""A frame worked out once: written to the buffer and read back, it is the same rows however often it is used.

Not by ``localCheckpoint``: pyspark 4.1's Connect client takes its result for one of the thread's first session,
whatever the frame's own is; and not by ``persist``, which reads anew after a write.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from flowctl.connectors.landing import Scratch, ScratchFolder

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame


#: Whether a finished write leaves a file ``_SUCCESS``. Nobody looks for it, and on a local disk Hadoop starts a process
#: (``chmod``) for each file and for its checksum.
NO_MARKER = "mapreduce.fileoutputcommitter.marksuccessfuljobs"


def buffered(frame: DataFrame, name: str, scratch: Scratch) -> DataFrame:
    """``name`` is the folder's, for people who look into a buffer."""
    return buffered_in(scratch.folder(name), frame)


def buffered_in(folder: ScratchFolder, frame: DataFrame, *, few: bool = False) -> DataFrame:
    """For who reads ``folder`` without an engine as well. ``few`` rows go through this process: an engine's own write
    of a file costs a job, and on a local disk some processes; in a JVM's first seconds it is also the slower way."""
    if few:
        put(folder, frame.toArrow())
    else:
        frame.write.mode("overwrite").option(NO_MARKER, "false").parquet(folder.url)
    return frame.sparkSession.read.schema(frame.schema).parquet(folder.url)


def put(folder: ScratchFolder, rows: pa.Table) -> None:
    with folder.sink(rows.schema) as sink:
        for part in rows.to_batches():
            sink.write(part)
