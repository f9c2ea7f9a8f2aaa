"""The order in which rows stand in a source, where it has one: of several rows with one key the last one counts."""

from __future__ import annotations

from abc import ABC, abstractmethod

from flowctl.connectors.base import Snapshot

#: A further column of frames, greater in later rows. Its type is the source's own matter.
PLACE_COLUMN = "_flowctl_place"


class OrderedSnapshot(ABC):
    """Extra power of a snapshot: its frames can say in which order their rows stand."""

    @property
    @abstractmethod
    def has_places(self) -> bool:
        """Whether its frames have :data:`PLACE_COLUMN`."""

    @abstractmethod
    def in_order(self) -> Snapshot:
        """The same moment with :data:`PLACE_COLUMN` in every frame, if this engine can tell; else this one."""
