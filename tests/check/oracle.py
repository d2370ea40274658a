"""The nested-loop oracle, with rows by position in an Arrow table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.oracle import violations, written

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["involved_rows", "violations_of"]


def violations_of(text: str, table: pa.Table) -> set[tuple[int, int | None]]:
    """Positions (left, right) of all pairs that violate a rule; a symmetric rule's once, the smaller first."""
    found = violations([written(text)], table.to_pylist())
    return {(left - 1, None if right is None else right - 1) for _, left, right in found}


def involved_rows(pairs: set[tuple[int, int | None]]) -> int:
    """How many rows stand in any of the pairs."""
    return len({row for pair in pairs for row in pair if row is not None})
