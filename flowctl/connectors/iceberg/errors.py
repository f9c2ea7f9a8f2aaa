"""PyIceberg's errors, and those of what it calls, as flowctl's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from flowctl.errors import AccessDenied, FlowctlError, TableError, TransientError
from flowctl.storage import access


@contextmanager
def errors_of(place: str) -> Iterator[None]:
    """Errors name ``place``. Those that a caller decides by pass: that a table or namespace is missing, or exists, and
    that a commit failed."""
    from pydantic import ValidationError
    from pyiceberg import exceptions as iceberg

    try:
        yield
    except (
        FlowctlError,
        iceberg.NoSuchTableError,
        iceberg.NoSuchNamespaceError,
        iceberg.TableAlreadyExistsError,
        iceberg.CommitFailedException,
        iceberg.CommitStateUnknownException,
    ):
        raise
    except (iceberg.UnauthorizedError, iceberg.ForbiddenError, iceberg.AuthorizationExpiredError) as error:
        what = f"{place} refuses access: {access.in_one_line(error)}"
        raise AccessDenied(
            what, hint="Check `credential` or `token` of the connection, and the user's rights"
        ) from error
    except (ValidationError, iceberg.ValidationException) as error:
        what = f"{place}: its metadata cannot be read: {access.in_one_line(error)}"
        raise TableError(what, hint="Repair or move the table") from error
    except Exception as error:
        if not _is_foreign(error):
            raise
        if refusal := access.refused_access(error):
            raise AccessDenied(f"{place} refuses access: {refusal}", hint=access.HINT) from error
        what = f"{place} cannot be reached: {access.in_one_line(error)}"
        raise TransientError(what, hint="Check the address, the credentials and the network") from error


def _is_foreign(error: Exception) -> bool:
    """Whether a client library or the operating system raised it: anything else is a mistake in this program."""
    modules = ("pyiceberg.", "sqlalchemy.", "requests.", "botocore.", "thrift.", "hive_metastore.")
    return isinstance(error, OSError) or type(error).__module__.startswith(modules)
