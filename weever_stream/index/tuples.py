"""A set of rows of one run, as a roaring bitmap with the dense mask that kernels read beside it.

The bitmap is what is counted, combined and saved; the mask is derived from it, one byte a row, and made only when the
set is not empty. Cost: O(1) to ask, O(rows added) to add, O(n) once for the mask.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from pyroaring import BitMap

from weever_stream.index.tree import ALIVE, Kept

if TYPE_CHECKING:
    from weever_stream.index.arrays import Bytes, Rows

__all__ = ["TupleSet"]

_NO_ROWS: Rows = np.empty(0, np.int32)


class TupleSet:
    """Some of the rows 0 … n-1."""

    __slots__ = ("bitmap", "mask", "n")

    def __init__(self, n: int, bitmap: BitMap | None = None) -> None:
        self.n = n
        self.bitmap = BitMap() if bitmap is None else bitmap
        self.mask: Bytes = ALIVE
        if self.bitmap:
            self.mask = np.zeros(n, np.uint8)
            self.mask[np.asarray(self.bitmap.to_array())] = 1

    def __len__(self) -> int:
        return len(self.bitmap)

    def add(self, rows: Rows) -> None:
        """Takes rows in."""
        if not len(rows):
            return
        self.bitmap.update(rows.tolist())
        if not len(self.mask):
            self.mask = np.zeros(self.n, np.uint8)
        self.mask[rows] = 1

    def discard(self, rows: Rows) -> None:
        """Takes rows out again."""
        self.bitmap.difference_update(BitMap(rows.tolist()))
        if len(self.mask):
            self.mask[rows] = 0

    def kept(self, start: int) -> Kept:
        """Where the rows that are not in the set go when they are numbered from `start` on."""
        if not self.bitmap:
            return Kept(_NO_ROWS, start)
        alive = self.mask[: self.n] == 0
        return Kept(np.where(alive, np.cumsum(alive, dtype=np.int32) + np.int32(start - 1), np.int32(-1)))

    def _check(self) -> None:
        """Asserts that bitmap and mask say the same."""
        assert not self.bitmap or self.bitmap.max() < self.n, "rows of this run"
        expected = np.zeros(len(self.mask), np.uint8)
        expected[np.asarray(self.bitmap.to_array(), np.int64)] = 1
        assert (expected == self.mask).all() if len(self.mask) else not self.bitmap, "mask and bitmap agree"
