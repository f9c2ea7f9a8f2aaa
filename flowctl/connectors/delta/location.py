"""Where one Delta table is stored, in the notation of each library."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from flowctl.connectors.lake.folder import Folder
from flowctl.model.table_info import ObjectName
from flowctl.redaction import REDACTOR
from flowctl.sql import dialects
from flowctl.storage.options import Storage, deltalake_options, deltalake_timeouts, spark_url

#: A table in a statement; the first one is the table that the statement is about.
_TABLE = re.compile(r"`?delta`?\.`(?:[^`]|``)*`")


@dataclass(frozen=True)
class TableLocation(Folder):
    """Its ``url`` is that of the table's folder."""

    @cached_property
    def options(self) -> dict[str, str]:
        """``storage_options`` for ``deltalake``."""
        return {**deltalake_options(self.url, self.storage), **deltalake_timeouts(self.url)}

    @property
    def spark_path(self) -> str:
        return spark_url(self.url, self.storage)

    @property
    def identifier(self) -> str:
        """The table in Spark SQL, without a catalog entry."""
        return dialects.table(self.parts, "spark")

    @property
    def shown_identifier(self) -> str:
        """The same for a plan, which is printed and saved: secrets in the path are redacted."""
        return dialects.table(("delta", REDACTOR.redact(self.spark_path)), "spark")

    def executable(self, statement: str) -> str:
        """A plan's statement about this table, in the form that Spark runs."""
        return _TABLE.sub(lambda _: self.identifier, statement, count=1)

    @property
    def parts(self) -> tuple[str, str]:
        return ("delta", self.spark_path)

    def sidecar(self, suffix: str) -> TableLocation:
        """The table of the same name with ``suffix``, in the same folder."""
        return TableLocation(self.url + suffix, self.storage)


def location_of(root: str, object: ObjectName, credentials: Storage) -> TableLocation:
    return TableLocation("/".join([root.rstrip("/"), *object.parts]), credentials)
