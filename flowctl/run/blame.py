"""Which connection a failure came from. Spark reads and writes in one job, so the call that failed does not tell; the
text does, by the place or by the system that it names. Where it does not, nobody is blamed: a connection that is
healthy must not be given up for another's failure, nor for the engine's."""

from __future__ import annotations

import re
from collections.abc import Sequence

from flowctl.connectors import registry
from flowctl.spec.spec import Connection

#: Two writers at once: the connection works.
_CONFLICT = re.compile(
    r"DELTA_CONCURRENT|Concurrent\w+Exception|another writer|another try|is locked|40001|40P01|55P03"
)
#: Shorter places would be found in words.
_SHORTEST = 4


def at_fault(text: str, connections: Sequence[Connection]) -> tuple[str, ...]:
    """Names of the ``connections`` that ``text``, an error with all its causes, speaks of. Several where they are one
    place."""
    if _CONFLICT.search(text):
        return ()
    named = [connection.name for connection in connections if any(place in text for place in places(connection))]
    if named:
        return tuple(named)
    signed = [connection.name for connection in connections if any(sign in text for sign in _signs(connection))]
    return tuple(signed) if len(signed) == 1 else ()


def places(connection: Connection) -> tuple[str, ...]:
    """How errors name where the connection leads; from what the spec says in clear."""
    options = {name: str(value) for name, value in connection.options.items()}
    found = registry.capabilities(connection.type).places(options)
    return tuple(place for place in found if len(place) >= _SHORTEST and "${" not in place)


def _signs(connection: Connection) -> tuple[str, ...]:
    return registry.capabilities(connection.type).signs
