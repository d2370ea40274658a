"""Column names that are ours: rows are stored and routed with columns of our own beside the user's.

A user's column of such a name would be taken for one of them and change answers, so it is refused wherever columns come
in. Spark tells no upper from lower case in names, so neither is told apart here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weever_stream.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ["PREFIX", "RENAME", "is_reserved", "refuse_reserved"]

PREFIX = "_weever_"
RENAME = f"rename the column: names that begin with {PREFIX} are reserved"


def is_reserved(name: str) -> bool:
    """Whether a column of a user must not have this name."""
    return name.lower().startswith(PREFIX)


def refuse_reserved(names: Iterable[str]) -> None:
    """Raises `DataError` for the first name that is reserved."""
    for name in names:
        if is_reserved(name):
            raise DataError(f"a column cannot be named {name}", hint=RENAME)
