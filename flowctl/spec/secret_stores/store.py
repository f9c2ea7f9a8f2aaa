"""The contract of a store that secrets are read from over the network."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from typing import ClassVar

from flowctl.errors import FlowctlError

#: Seconds. A store that does not answer fails the table soon; the run repeats the attempt.
CONNECT_TIMEOUT = 5
READ_TIMEOUT = 15


class SecretStore(ABC):
    """One kind of store. The client takes its settings and credentials from where its own tools take them: environment
    variables, profiles, the identity of the machine. It is imported only by methods, never by the module.

    ``title`` is the name in messages; ``clients`` are the client's modules, which :mod:`flowctl.extras` knows how to
    install. ``name_form`` is what all of a valid name matches, ``example`` a name in that form.

    An instance is created once per process, and used by several threads.
    """

    title: ClassVar[str]
    clients: ClassVar[tuple[str, ...]]
    name_form: ClassVar[re.Pattern[str]]
    example: ClassVar[str]

    @abstractmethod
    def read(self, name: str, version: str) -> str:
        """The whole secret as text, JSON if it has fields; the current version if ``version`` is empty. May raise the
        client's own errors, which the caller passes to :meth:`explain`."""

    @classmethod
    @abstractmethod
    def explain(cls, error: Exception, name: str) -> FlowctlError | None:
        """An error of the constructor or of :meth:`read` in flowctl's words, without anything that the store sent.
        None for one that is not the client's."""
