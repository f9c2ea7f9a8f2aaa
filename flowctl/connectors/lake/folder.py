"""A folder of a table, and its files, by flowctl's own storage: what is written survives a power failure."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from flowctl.errors import FlowctlError, TransientError
from flowctl.storage.access import in_one_line
from flowctl.storage.durable import create_durably, make_folder, sync_folder, write_durably
from flowctl.storage.objects import is_refused_create
from flowctl.storage.options import READ_AHEAD, Storage, fsspec_options
from flowctl.storage.urls import local_path, scheme

if TYPE_CHECKING:
    import pyarrow.parquet as pq
    from fsspec import AbstractFileSystem


@dataclass(frozen=True)
class Folder:
    """``url`` is an absolute local path or an object store's URL, without a trailing slash."""

    url: str
    storage: Storage

    def read_file(self, name: str) -> bytes:
        """OSError if it cannot be read. A local file is read without fsspec: its import takes an eighth of the time of
        a run with nothing to do."""
        if scheme(self.url) == "file":
            return local_path(f"{self.url}/{name}").read_bytes()
        with _os_errors():
            content: bytes = self.file_system().cat_file(f"{self.url}/{name}")
        return content

    def write_file(self, name: str, content: bytes) -> None:
        """Writes a new file that a commit will reference; OSError if that fails. On a local disk it survives a power
        failure, as the commit does."""
        path = f"{self.url}/{name}"
        if scheme(self.url) != "file":
            with _os_errors():
                self.file_system().pipe_file(path, content)
            return
        file = local_path(path)
        make_folder(file.parent)
        write_durably(file, content)
        sync_folder(file.parent)

    def create_file(self, name: str, content: bytes) -> bool:
        """As :meth:`write_file`, but atomically; False if the file already exists."""
        path = f"{self.url}/{name}"
        try:
            if scheme(self.url) == "file":
                make_folder(local_path(path).parent)
                return create_durably(local_path(path), content)
            with _os_errors():
                self.file_system().pipe_file(path, content, mode="create")
        except OSError as error:
            if is_refused_create(error):
                return False
            raise TransientError(f"{path} could not be written: {error.strerror or error}") from error
        return True

    def replace_file(self, name: str, content: bytes) -> None:
        """Writes a file that may exist, atomically; OSError if that fails."""
        path = f"{self.url}/{name}"
        if scheme(self.url) != "file":
            with _os_errors():
                self.file_system().pipe_file(path, content)
            return
        file = local_path(path)
        unfinished = file.with_name(f".{file.name}.{uuid.uuid4().hex}")
        write_durably(unfinished, content)
        unfinished.replace(file)

    @contextmanager
    def open_parquet(self, name: str, footer: pq.FileMetaData | None = None) -> Iterator[pq.ParquetFile]:
        """``footer``: the file's, if it was read before. Spark's and Hive's old 96-bit timestamps are read in
        microseconds: in nanoseconds they are wrong before 1677 and after 2262."""
        import pyarrow.parquet as pq

        url, is_local = f"{self.url}/{name}", scheme(self.url) == "file"
        with ExitStack() as stack:
            source = (
                local_path(url)
                if is_local
                else stack.enter_context(self.file_system().open(url, "rb", block_size=READ_AHEAD))
            )
            parquet = pq.ParquetFile(source, metadata=footer, pre_buffer=not is_local, coerce_int96_timestamp_unit="us")
            yield stack.enter_context(parquet)

    def file_system(self) -> AbstractFileSystem:
        """Caches no listings, and creates local folders implicitly, as object stores do."""
        import fsspec

        kind = scheme(self.url)
        if kind == "file":
            return fsspec.filesystem("file", auto_mkdir=True)
        return fsspec.filesystem(kind, use_listings_cache=False, **fsspec_options(self.url, self.storage))


@contextmanager
def _os_errors() -> Iterator[None]:
    """The clients of Azure and Google raise errors of their own."""
    try:
        yield
    except (OSError, FlowctlError):
        raise
    except Exception as error:
        raise OSError(in_one_line(error)) from error
