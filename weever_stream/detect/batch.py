"""What a batch of changes touches: the rows it finds held, the rows that come and go, and which pairs may cancel.

Plain values that `Shard.apply` hands from one of its steps to the next.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from weever_stream.detect.rows import take_rows

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pyarrow as pa

    from weever_stream.detect.found import Found
    from weever_stream.detect.run import Run
    from weever_stream.detect.tail import Tail
    from weever_stream.index.arrays import Ints, Mask
    from weever_stream.index.arrays import Rows as Positions

__all__ = ["Held", "RowsOfBatch", "split_by_cancelling"]


@dataclass(slots=True, eq=False)
class RowsOfBatch:
    """Rows of a batch, or those that it ends, as pairs point into them."""

    table: pa.RecordBatch
    known_as: Ints
    replacing: Mask | None = None
    """Rows whose key is held before and after the batch, if there are any."""

    def take(self, rows: Positions, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """The values of some rows."""
        return take_rows(self.table, rows, columns)

    def numbers(self, rows: Positions) -> Ints:
        """Numbers that a key keeps through the batch."""
        return self.known_as[rows]


@dataclass(frozen=True)
class Held:
    """The living rows that the changes of a batch find under their keys."""

    parts: list[Run | Tail] = field(default_factory=list)
    rows: list[Positions] = field(default_factory=list)
    changes: list[Positions] = field(default_factory=list)
    """Positions of the changes that found them."""

    def add(self, part: Run | Tail, rows: Positions, changes: Positions) -> None:
        """Takes in what was found in one part."""
        self.parts.append(part)
        self.rows.append(rows)
        self.changes.append(changes)

    def __iter__(self) -> Iterator[tuple[Run | Tail, Positions, Positions]]:
        return zip(self.parts, self.rows, self.changes, strict=True)


def split_by_cancelling(found: Found, mine: RowsOfBatch) -> Iterator[tuple[Found, bool]]:
    """Pairs that touch a row whose key is there before and after, which may cancel; and those that cannot."""
    if mine.replacing is None:
        yield found, False
        return
    touched = np.zeros(len(found), np.bool_)
    for side, rows in ((found.left, found.left_rows), (found.right, found.right_rows)):
        if side is mine and rows is not None:
            touched |= mine.replacing[rows]
    for which, again in ((touched, True), (~touched, False)):
        if which.any():
            yield found.take(which), again
