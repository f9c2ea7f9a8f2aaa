"""Removes rows: hides them with a deletion vector or, in a table without these, rewrites their file without them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from flowctl.connectors.arrow import arrow_schema
from flowctl.connectors.delta import data_files, deletion_vectors
from flowctl.connectors.delta.actions import is_elsewhere, row_count
from flowctl.connectors.delta.location import TableLocation
from flowctl.connectors.delta.statements import DELETION_VECTORS
from flowctl.connectors.delta.types import Action
from flowctl.connectors.lake.table import Removal

if TYPE_CHECKING:
    from pyroaring import BitMap64

    from flowctl.connectors.delta.table import OpenTable
    from flowctl.connectors.lake.row_search import Search


def remove_rows(search: Search, table: OpenTable, files: Sequence[Action], gone: Mapping[int, BitMap64]) -> Removal:
    """Removes the rows in ``gone``, which ``search`` has found, from ``files``."""
    vectors = {at: rows | search.files[at].hidden() for at, rows in gone.items()}
    partly = {at: rows for at, rows in vectors.items() if not _is_all(rows, files[at])}
    if _has_deletion_vectors(table):
        kept = _hide(table.location, {files[at]["path"]: rows for at, rows in partly.items()}, files)
    else:
        kept = _rewrite(search, table, files, partly)
    return Removal(tuple(files[at] for at in vectors), tuple(kept))


def _has_deletion_vectors(table: OpenTable) -> bool:
    return (
        table.properties.get(DELETION_VECTORS) == "true"
        and "deletionVectors" in table.protocol.get("writerFeatures", ())
        and all('"numRecords"' in (file.get("stats") or "") for file in table.files)
    )


def _is_all(rows: BitMap64, file: Action) -> bool:
    return '"numRecords"' in (file.get("stats") or "") and len(rows) == row_count(file)


def _hide(location: TableLocation, rows: Mapping[str, BitMap64], files: Sequence[Action]) -> Iterator[Action]:
    if not rows:
        return
    descriptors = deletion_vectors.write(location, rows)
    for file in files:
        if file["path"] in descriptors:
            yield _with_vector(file, descriptors[file["path"]])


def _with_vector(file: Action, descriptor: deletion_vectors.Descriptor) -> Action:
    """``file`` with other rows hidden: its statistics may then name values of hidden rows."""
    wide, replaced = re.subn(r'"tightBounds"\s*:\s*(?:true|false)', '"tightBounds":false', file["stats"])
    stats = wide if replaced else f'{file["stats"].rstrip().removesuffix("}")},"tightBounds":false}}'
    return {**file, "stats": stats, "deletionVector": dict(descriptor), "dataChange": True}


def _rewrite(
    search: Search, table: OpenTable, files: Sequence[Action], gone: Mapping[int, BitMap64]
) -> Iterator[Action]:
    for at, rows in gone.items():
        partition = search.files[at].partition_values
        schema = arrow_schema([column for column in search.columns if column.name not in partition])
        groups = search.other_rows(at, rows)
        add = data_files.write_groups(table.location, table.metadata, schema, groups, _folder(files[at]["path"]))
        if add is not None:
            yield {**add, "partitionValues": files[at]["partitionValues"]}


def _folder(path: str) -> str:
    """The folder of the new file: that of the old one, as Polars needs the partition's name in the paths of all files
    or none; for a file of another table, which has an absolute path, the table's folder."""
    return "" if is_elsewhere(path) else path.rpartition("/")[0]
