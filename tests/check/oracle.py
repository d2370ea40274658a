"""The nested-loop oracle, with rows by position in an Arrow table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.oracle import violations

if TYPE_CHECKING:
    import pyarrow as pa

    from weever_stream.rules import Rule

__all__ = ["involved_rows", "violations_of"]


def violations_of(rule: Rule, table: pa.Table) -> set[tuple[int, int | None]]:
    """Positions (left, right) of all pairs that violate a rule; a symmetric rule's once, the smaller first."""
    return {
        (left - 1, None if right is None else right - 1) for _, left, right in violations([rule], table.to_pylist())
    }


def involved_rows(pairs: set[tuple[int, int | None]]) -> int:
    """How many rows stand in any of the pairs."""
    return len({row for pair in pairs for row in pair if row is not None})
