"""A connector: what its package has, what one type of connection can do, and what an open one is. :mod:`.source` and
:mod:`.target` are the contracts behind it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol

from flowctl.connectors.gaps import Gap
from flowctl.connectors.source import DirectSource, LandedSource, SourceCapabilities
from flowctl.connectors.target import Target, TargetCapabilities
from flowctl.engine.conf import Extension
from flowctl.model.table_info import ObjectName
from flowctl.spec.spec import Connection, TableSpec
from flowctl.storage.buffer import Buffer


@dataclass(frozen=True)
class Capabilities:
    """What one connector type can do. ``extra`` is the pip extra that brings its drivers, ``drivers`` their import
    names, ``jars`` the sets of ``ivy.xml`` that Spark needs, ``spark`` what they add to it. ``training`` gives, from an
    empty folder, the options of a connection that the class-data archive is trained with (None: not with this type).
    ``signs`` are texts that its errors hold, in any library; a target's executors import ``on_executors``. ``storage``
    names the option that is a URL or a folder of files. ``places`` gives, from a connection's options as text, how
    errors name where it leads. ``gaps`` says what an engine cannot do with a table that reads or writes a connection,
    or with the connection alone (None), by the spec."""

    source: SourceCapabilities | None
    target: TargetCapabilities | None
    extra: str | None = None
    drivers: tuple[str, ...] = ()
    jars: tuple[str, ...] = ()
    spark: Extension | None = None
    training: Callable[[str], Mapping[str, str]] | None = None
    signs: tuple[str, ...] = ()
    on_executors: tuple[str, ...] = ()
    storage: str | None = None
    places: Callable[[Mapping[str, str]], Iterable[str]] = lambda options: ()
    gaps: Callable[[str, Connection, TableSpec | None], Iterable[Gap]] = lambda engine, connection, table: ()


@dataclass(frozen=True)
class OpenContext:
    """What a connection needs beside its options: ``storage`` as in the spec, the folder of the spec file, where
    relative local paths start, and the buffer (None while planning)."""

    storage: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    base_dir: str = "."
    buffer: Buffer | None = None


@dataclass(frozen=True)
class Connector:
    """What one open connection can do, as ``connect(connection, context)`` of a connector's package yields it.
    ``source`` and ``target`` are None where the type cannot be one; both work on the same system."""

    source: DirectSource | LandedSource | None = None
    target: Target | None = None


class Package(Protocol):
    """What the package of a connector has, which is named as its ``type``. Only ``connect`` loads a driver; nothing
    reveals a secret."""

    CAPABILITIES: Capabilities

    def place(self, options: Mapping[str, Any], object: ObjectName, base_dir: str) -> str | None:
        """Where ``object`` is as far as the spec tells, equal for two names of one object; None when only the system
        can tell."""

    def refuse_name(self, options: Mapping[str, Any], object: ObjectName, base_dir: str) -> str | None:
        """Of a target: why no table can have this name, which may be a sidecar's; None when one can."""

    def connect(self, connection: Connection, context: OpenContext) -> AbstractContextManager[Connector]:
        """Opens ``connection``, its secrets resolved."""
