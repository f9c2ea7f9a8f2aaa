"""Files as a direct source: each is read once, with a schema that was checked against every one of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from flowctl.connectors.base import Capabilities, Head, HeadRequest, ReadRequest, Relation, Snapshot
from flowctl.connectors.exact import exactly
from flowctl.connectors.files.formats import Format, columns_of_file, format_of, spark_options, text_columns
from flowctl.connectors.files.listing import FileRoot, matching
from flowctl.connectors.refusal import refused
from flowctl.errors import FlowctlError, TableError
from flowctl.model import types
from flowctl.model.interval import Interval
from flowctl.model.position import FilesPosition, FileStamp
from flowctl.model.table_info import Column, ObjectName, RowEstimate, TableInfo
from flowctl.spec.spec import ReadHints

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: How many files, the last by name, say what the columns are when a plan is made. A read looks at all of its files.
_DESCRIBED_FILES = 100
_PARALLEL = 16


@dataclass(frozen=True)
class FilesSource:
    """A :class:`flowctl.connectors.base.DirectSource` below one root. ``where`` is Spark SQL here."""

    root: FileRoot
    capabilities: Capabilities

    def discover(self, pattern: tuple[str, ...]) -> list[ObjectName]:
        """Each file that matches, as an object of its own."""
        return [ObjectName((stamp.path,)) for stamp in matching(self.root, pattern[-1])]

    def describe(self, relations: Sequence[Relation]) -> Mapping[Relation, TableInfo | None]:
        """None when no file is there; the identity is the root."""
        return {relation: self._describe(relation) for relation in relations}

    def heads(self, requests: Mapping[str, HeadRequest]) -> Mapping[str, Head]:
        """Every file there now; what is new among them is decided by the plan."""
        return {name: self._head(request.relation) for name, request in requests.items()}

    @contextmanager
    def snapshot(
        self, spark: SparkSession, relation: Relation, info: TableInfo, hints: ReadHints
    ) -> Iterator[Snapshot]:
        with _named(relation):
            yield FilesSnapshot(spark, self.root, relation, info)

    def _describe(self, relation: Relation) -> TableInfo | None:
        pattern = _pattern(relation)
        stamps = matching(self.root, pattern)
        if not stamps:
            return None
        format = format_of(pattern, relation.format)
        found = columns_of(self.root, format, stamps[-_DESCRIBED_FILES:])
        return TableInfo(
            object=ObjectName((pattern,)),
            columns=merged(found),
            identity=f"files:{self.root.url}",
            rows=RowEstimate(bytes=sum(stamp.size for stamp in stamps)),
        )

    def _head(self, relation: Relation) -> Head:
        stamps = matching(self.root, _pattern(relation))
        rows = RowEstimate(bytes=sum(stamp.size for stamp in stamps))
        return Head(FilesPosition(stamps) if stamps else None, rows)


@dataclass(frozen=True)
class FilesSnapshot:
    """A :class:`flowctl.connectors.base.Snapshot` of files that do not change; one that did is refused."""

    spark: SparkSession
    root: FileRoot
    relation: Relation
    info: TableInfo

    def frame(self, request: ReadRequest) -> DataFrame:
        stamps = self._files(request.interval)
        format = format_of(_pattern(self.relation), self.relation.format)
        found = columns_of(self.root, format, stamps)
        known = {column.name: column for column in self.info.columns}
        for path, columns in found.items():
            _require_known(path, columns, known)
        asked = merged(found) if found else self.info.columns
        whole = self._read(format, stamps, asked)
        rows = whole.where(self.relation.where) if self.relation.where else whole
        return rows.select(*[self._column(column, {one.name: one for one in asked}) for column in request.columns])

    def _files(self, interval: Interval | None) -> tuple[FileStamp, ...]:
        """Those of the interval, still as they were planned; all that are there now without one."""
        here = matching(self.root, _pattern(self.relation))
        if interval is None or not isinstance(interval.upper, FilesPosition):
            return here
        read = set(interval.lower.files) if isinstance(interval.lower, FilesPosition) else set()
        wanted = tuple(stamp for stamp in interval.upper.files if stamp not in read)
        gone = sorted(stamp.path for stamp in set(wanted) - set(here))
        if gone:
            raise TableError(
                f"{gone[0]} is gone or was changed since the plan was made"
                + (f", and {len(gone) - 1} more" * (len(gone) > 1)),
                hint="put the file back, or plan again",
            )
        return wanted

    def _read(self, format: Format, stamps: Sequence[FileStamp], columns: tuple[Column, ...]) -> DataFrame:
        """All columns of the files in the order that CSV needs, text formats as text first."""
        raw = text_columns(columns) if format.is_text else columns
        ddl = ", ".join(f"{_name(column.name)} {types.spark_ddl(column.type)}" for column in raw)
        if not stamps:
            return self.spark.createDataFrame([], ddl)
        reader = self.spark.read.schema(ddl).options(**spark_options(format))
        name = "json" if format.name == "jsonl" else format.name
        files = reader.format(name).load([self.root.spark_path(stamp.path) for stamp in stamps])
        if not format.is_text:
            return files
        return files.select(
            *[
                exactly(files[_name(text.name)], text, column).alias(column.name)
                for text, column in zip(raw, columns, strict=True)
            ]
        )

    def _column(self, wanted: Column, found: Mapping[str, Column]) -> Any:
        from pyspark.sql import functions as f

        if wanted.name not in found:
            return f.lit(None).cast(types.spark_ddl(wanted.type)).alias(wanted.name)
        return exactly(f.col(_name(wanted.name)), found[wanted.name], wanted).alias(wanted.name)


def columns_of(root: FileRoot, format: Format, stamps: Sequence[FileStamp]) -> dict[str, tuple[Column, ...]]:
    """The columns of each file by its path, read side by side."""
    system, base = root.file_system()

    def read(stamp: FileStamp) -> tuple[Column, ...]:
        compression = "infer" if format.is_text else None
        return columns_of_file(
            format, lambda: system.open(f"{base}/{stamp.path}", "rb", compression=compression), stamp.path
        )

    with ThreadPoolExecutor(_PARALLEL) as pool:
        return dict(zip((stamp.path for stamp in stamps), pool.map(read, stamps), strict=True))


def merged(found: Mapping[str, tuple[Column, ...]]) -> tuple[Column, ...]:
    """The columns of all files, in the order in which they appear; nullable where a file does not have them. A column
    may be wider in some files; any other difference of types is an error that names both files."""
    columns: dict[str, Column] = {}
    origin: dict[str, str] = {}
    for path, of_file in found.items():
        for column in of_file:
            before = columns.get(column.name)
            columns[column.name] = column if before is None else _common(before, column, origin[column.name], path)
            origin.setdefault(column.name, path)
    everywhere = set.intersection(*({column.name for column in of_file} for of_file in found.values()))
    return tuple(column if column.name in everywhere else replace(column, nullable=True) for column in columns.values())


def _common(one: Column, other: Column, path: str, other_path: str) -> Column:
    nullable = one.nullable or other.nullable
    if one.type == other.type or types.is_wider(one.type, other.type):
        return replace(one, nullable=nullable)
    if types.is_wider(other.type, one.type):
        return replace(other, nullable=nullable)
    raise TableError(
        f"column {one.name} is {types.short(one.type)} in {path} and {types.short(other.type)} in {other_path}",
        hint="read them as two tables, or rewrite one",
    )


def _require_known(path: str, columns: Sequence[Column], known: Mapping[str, Column]) -> None:
    new = [column.name for column in columns if column.name not in known]
    if new:
        raise TableError(f"{path} has a column {new[0]} that the plan did not know", hint="plan again")


@contextmanager
def _named(relation: Relation) -> Iterator[None]:
    """Spark's errors by file, without the row that it quotes."""
    try:
        yield
    except FlowctlError:
        raise
    except Exception as error:
        text = str(error)
        if own := refused(text):
            raise own from error
        file = re.search(r"file:?\s*((?:file|s3a?|gs|abfss?)://?\S+?)[.,]?(?:\s|$)", text)
        if "MALFORMED_RECORD" in text or "FAILED_READ_FILE" in text:
            where = file[1] if file else _pattern(relation)
            raise TableError(f"{where} holds a row that does not fit its columns", hint=_MALFORMED_HINT) from error
        if "CSV header does not conform" in text:
            raise TableError(
                f"a file of {_pattern(relation)} has another header than the others", hint=_MALFORMED_HINT
            ) from error
        raise


_MALFORMED_HINT = "mend the file, or set format (delimiter, quote, escape, header, multiline)"


def _pattern(relation: Relation) -> str:
    if relation.object is None:
        raise TableError("files are named by a path, not by a query", hint="write `from: connection:path`")
    return relation.object.parts[-1]


def _name(column: str) -> str:
    return f"`{column.replace('`', '``')}`"
