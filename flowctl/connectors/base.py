"""A connector: what its package provides, what a connection type can do, and what an open connection offers. The
contracts behind it are :mod:`.source` and :mod:`.target`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from flowctl.connectors.gaps import Gap
from flowctl.connectors.source import DirectSource, LandedSource, SourceCapabilities
from flowctl.connectors.target import Target, TargetCapabilities
from flowctl.engine.conf import Extension
from flowctl.model.table_info import ObjectName
from flowctl.spec.spec import Connection, TableSpec
from flowctl.storage.buffer import Buffer

if TYPE_CHECKING:
    from flowctl.connectors.stream import StreamSource


@dataclass(frozen=True)
class Capabilities:
    """What one connector type can do. ``extra`` is the pip extra that installs its drivers, ``drivers`` their import
    names, ``jars`` the sets of ``ivy.xml`` that Spark needs, ``spark`` the settings that go with them. ``training``
    maps an empty folder to the options of a connection for training the class-data archive (None: not trained).
    ``signs`` are substrings that identify its errors, in any library; ``on_executors`` lists the modules that executors
    import to write a table to a connection. ``storage`` names the option that is a URL or a folder of files. ``places``
    maps a connection's options, as text, to the names by which errors refer to its location. ``gaps`` lists, from the
    spec, what an engine does not support for a table that reads or writes a connection; the text is the folder of the
    spec file. ``recognizes``: whether a file or folder on this machine is one that such a connection reads, for
    `flowctl init`; its URL is then the type, a colon and the path. ``suffixes`` are those of the files that such a
    connection creates, in lower case."""

    source: SourceCapabilities | None
    target: TargetCapabilities | None
    extra: str | None = None
    drivers: tuple[str, ...] = ()
    jars: tuple[str, ...] = ()
    spark: Extension | None = None
    training: Callable[[str], Mapping[str, str]] | None = None
    signs: tuple[str, ...] = ()
    on_executors: Callable[[Connection, TableSpec], tuple[str, ...]] = lambda connection, table: ()
    storage: str | None = None
    places: Callable[[Mapping[str, str]], Iterable[str]] = lambda options: ()
    gaps: Callable[[str, Connection, TableSpec, str], Iterable[Gap]] = lambda engine, connection, table, base_dir: ()
    recognizes: Callable[[Path], bool] = lambda path: False
    suffixes: tuple[str, ...] = ()


@dataclass(frozen=True)
class OpenContext:
    """What a connection needs besides its options: ``storage`` as in the spec, the folder of the spec file, which
    relative local paths start from, and the buffer (None while planning)."""

    storage: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    base_dir: str = "."
    buffer: Buffer | None = None


@dataclass(frozen=True)
class Connector:
    """One open connection, as ``connect(connection, context)`` of a connector's package yields it. ``source``,
    ``target`` or ``streams`` is None if the type does not support it; all work on the same system. ``greet`` asks the
    system for one answer and says in a few words what answers; raises :class:`FlowctlError` if nothing does."""

    source: DirectSource | LandedSource | None = None
    target: Target | None = None
    streams: StreamSource | None = None
    greet: Callable[[], str] = lambda: ""


class Package(Protocol):
    """What a connector's package provides; its name is the ``type``. Only ``connect`` loads a driver; nothing here
    resolves a secret."""

    CAPABILITIES: Capabilities

    def place(self, options: Mapping[str, Any], object: ObjectName, base_dir: str) -> str | None:
        """The location of ``object`` according to the spec, equal for two names of one object; None if only the system
        knows it."""

    def refuse_name(self, options: Mapping[str, Any], object: ObjectName, base_dir: str) -> str | None:
        """For a target: why no table can have this name, which may be a sidecar's; None if the name is valid."""

    def connect(self, connection: Connection, context: OpenContext) -> AbstractContextManager[Connector]:
        """Opens ``connection``, whose secrets are resolved."""
