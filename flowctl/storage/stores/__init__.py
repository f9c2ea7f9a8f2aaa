"""One module per kind of storage. Its ``STORE`` is found by the schemes of its URLs: nothing here lists the modules."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from flowctl.storage.store import Store


@cache
def by_scheme() -> dict[str, Store]:
    """All stores, keyed by each of their schemes."""
    modules = (importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__))
    return {scheme: module.STORE for module in modules for scheme in module.STORE.schemes}
