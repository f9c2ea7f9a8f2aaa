"""The snapshot that a commit adds, where PyIceberg's own would not do."""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.manifest import ManifestContent, ManifestFile
from pyiceberg.table import TableProperties, Transaction
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update.snapshot import _ManifestMergeManager, _OverwriteFiles

#: Of which a manifest is made from several, unless the table says otherwise: 100 small ones take a tenth of a second.
_MANIFESTS = 50


class FilesReplaced(_OverwriteFiles):
    """Adds files, and removes others. Unlike PyIceberg's, it joins small manifests, of which each commit adds one, and
    drops those without files; and its operation may be REPLACE, for ``same_rows`` in other files."""

    def __init__(
        self, transaction: Transaction, properties: Mapping[str, str], *, removes: bool, same_rows: bool
    ) -> None:
        operation = Operation.OVERWRITE if removes else Operation.APPEND
        super().__init__(operation, transaction, transaction._table.io, snapshot_properties=dict(properties))
        self._same_rows = same_rows

    def _process_manifests(self, manifests: list[ManifestFile]) -> list[ManifestFile]:
        of_table, names = self._transaction.table_metadata.properties, TableProperties
        size = of_table.get(names.MANIFEST_TARGET_SIZE_BYTES, names.MANIFEST_TARGET_SIZE_BYTES_DEFAULT)
        most = of_table.get(names.MANIFEST_MIN_MERGE_COUNT, _MANIFESTS)
        merging = _ManifestMergeManager(int(size), int(most), merge_enabled=True, snapshot_producer=self)
        kept = [one for one in manifests if one.added_snapshot_id in (None, self._snapshot_id) or _has_files(one)]
        data = [one for one in kept if one.content == ManifestContent.DATA]
        return [*merging.merge_manifests(data), *(one for one in kept if one.content != ManifestContent.DATA)]

    def _summary(self, snapshot_properties: dict[str, str] = {}) -> Summary:  # noqa: B006 - as PyIceberg's
        made = super()._summary(snapshot_properties)
        if self._same_rows:
            return Summary(operation=Operation.REPLACE, **made.additional_properties)
        return made


def _has_files(manifest: ManifestFile) -> bool:
    """Whether it has files that live; those that it only says are removed were removed by an earlier snapshot."""
    counts = (manifest.added_files_count, manifest.existing_files_count)
    return None in counts or any(counts)
