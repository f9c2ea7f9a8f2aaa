"""Finds a connector by its type's name, which is the name of its package: no type is listed here."""

from __future__ import annotations

import importlib
import importlib.util
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cache
from typing import cast

from flowctl import extras
from flowctl.connectors.base import Capabilities, Connector, OpenContext, Package
from flowctl.engine.conf import Extension
from flowctl.errors import FlowctlError, TableError
from flowctl.model.table_info import ObjectName
from flowctl.spec import secrets
from flowctl.spec.schema import connector_types
from flowctl.spec.spec import Connection


def capabilities(type: str) -> Capabilities:
    """What ``type`` can do; loads no driver. Raises ``FlowctlError`` if there is no such connector."""
    return _package(type).CAPABILITIES


def all_capabilities() -> dict[str, Capabilities]:
    """The capabilities of every type."""
    return {type: capabilities(type) for type in connector_types()}


def extensions() -> list[Extension]:
    """What all connectors add to Spark."""
    return [found.spark for found in all_capabilities().values() if found.spark]


def place(connection: Connection, object: ObjectName, base_dir: str) -> str | None:
    """See :meth:`Package.place`."""
    return _package(connection.type).place(connection.options, object, base_dir)


def storage(connection: Connection) -> object:
    """The URL or folder of files that ``connection`` reads or writes, which may contain secrets; None for others."""
    option = capabilities(connection.type).storage
    return connection.options.get(option) if option is not None else None


def refuse_name(connection: Connection, object: ObjectName, base_dir: str) -> str | None:
    """See :meth:`Package.refuse_name`."""
    return _package(connection.type).refuse_name(connection.options, object, base_dir)


def open(connection: Connection, context: OpenContext) -> AbstractContextManager[Connector]:
    """Resolves the secrets of ``connection`` and opens it; the ``FlowctlError`` for a missing driver names the extra to
    install. Called only by observe and run."""
    package = _package(connection.type)
    _require_drivers(connection.type, package.CAPABILITIES)
    revealed = replace(connection, options=secrets.reveal(connection.options))
    return package.connect(revealed, context)


@cache
def _package(type: str) -> Package:
    name = f"flowctl.connectors.{type}"
    if not type.isidentifier() or importlib.util.find_spec(name) is None:
        raise FlowctlError(f"there is no connector {type!r}", hint="List the connection types with `flowctl schema`")
    return cast(Package, importlib.import_module(name))


def _require_drivers(type: str, capabilities: Capabilities) -> None:
    missing = next((name for name in capabilities.drivers if not extras.is_installed(name)), None)
    if missing:
        raise TableError(
            f"connections of type {type} need {missing}, which is not installed", hint=extras.install_hint(missing)
        )
