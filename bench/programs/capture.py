"""Only the capture of a stream: ``python -m bench.programs.capture SPEC STREAM`` lands what its slot has, up to the end
of the log, and applies nothing. The spec's flow was applied before."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from flowctl.connectors import registry
from flowctl.connectors.base import OpenContext
from flowctl.observe.relations import objects_of
from flowctl.run.streaming.capturing import Capturing
from flowctl.run.streaming.retention import Kept
from flowctl.spec.load import load_spec
from flowctl.spec.spec import stream_of
from flowctl.state.location import open_flow
from flowctl.state.streams import landing_log, stream_store


def main() -> None:
    path, name = sys.argv[1:]
    os.chdir(Path(path).parent)
    spec = load_spec([path], {})
    stream, log = spec.streams[name], landing_log(spec, name)
    document = stream_store(open_flow(spec), name).read()
    assert document.stream is not None
    newest = log.newest(document.stream.applied)
    assert newest is not None
    objects = objects_of([table for table in spec.tables if stream_of(table) == name])
    with registry.open(
        spec.connections[stream.connection], OpenContext(spec.storage, spec.base_dir, None)
    ) as connector:
        assert connector.streams is not None
        info = connector.streams.describe_stream(stream, objects)
        kept = Kept(stream, log)
        with Capturing(stream, connector.streams, log, kept, lambda: None, lambda event: None) as capture:
            capture.goal = info.head
            capture.start(newest, objects, None)
            capture.result()
            assert capture.newest is not None
            print(sum(batch.changes for batch in log.between(newest.batch, capture.newest.batch)))


main()
