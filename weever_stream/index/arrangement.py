"""Choosing how rows of one key lie in a tree, by trying it on a sample.

Sorting by one column is best where the others follow it; Z-order is best where they are independent, by a factor of
ten and more. The data decides: a sample of the rows is arranged each way and probed, and the way that visits the
fewest nodes wins. A choice holds until the tree has grown eightfold. Cost: a few ms, a handful of times in the life
of a forest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weever_stream.index.layout import ZORDER
from weever_stream.index.sorting import quantile_cuts, sort_rows
from weever_stream.index.tree import Arrangement, Entries, Programs, Tree
from weever_stream.rules.model import Op

if TYPE_CHECKING:
    from weever_stream.index.arrays import Mask

__all__ = ["UNORDERED", "arrange", "outgrown"]

_TRY_FROM = 2048
"""Fewer rows are not worth a choice."""
_SLICES, _SLICE = 8, 1024
_PROBES = 128
_GROWTH = 8
_MOST = np.iinfo(np.int64).max
_FOR_EVER = np.iinfo(np.int64).max // _GROWTH
UNORDERED = Arrangement(at=_FOR_EVER)
"""Rows that are found by key alone lie as they come."""


def outgrown(arrangement: Arrangement, n: int) -> bool:
    """Whether a tree of n rows should be arranged anew."""
    return n >= _TRY_FROM and n >= _GROWTH * arrangement.at


def arrange(entries: Entries, programs: list[Programs]) -> Arrangement:
    """The arrangement in which the programs that probe these entries visit the fewest nodes.

    Only programs of entries that probe their own side can be tried; where there are none, Z-order is taken.
    """
    n, width = len(entries), entries.codes
    if width < 2:
        return UNORDERED if width == 0 else Arrangement(lead=0, at=_FOR_EVER)
    if n < _TRY_FROM:
        return Arrangement(lead=0, at=n)
    bits = max(2, min(62 // width, 10 if width > 2 else 11, int(n).bit_length() - 2))
    cuts = quantile_cuts(np.ascontiguousarray(entries.values), bits)
    choices = [Arrangement(ZORDER, cuts, n)]
    ordered = _in_order(programs, width)
    if 1 < ordered.sum() < width:  # what is only compared for inequality need not pull rows apart
        choices.append(Arrangement(ZORDER, np.where(np.repeat(ordered, len(cuts) // width), cuts, _MOST), n))
    choices += [Arrangement(lead=column, at=n) for column in _ordered_columns(programs, width)]
    if len(choices) == 1:
        return choices[0]
    sample = _sample(entries)
    queries = sample.take(np.arange(0, len(sample), max(1, len(sample) // _PROBES)))
    return min(choices, key=lambda choice: _visits(sample, queries, choice, programs))


def _in_order(programs: list[Programs], width: int) -> Mask:
    """Which columns stand in an order predicate."""
    found = np.zeros(width, np.bool_)
    for group in programs:
        found[group.predicates[group.predicates[:, 1] != Op.NE.value, 0]] = True
    return found


def _ordered_columns(programs: list[Programs], width: int) -> list[int]:
    """Columns worth sorting by, those in most predicates first; at most four are tried."""
    uses = np.zeros(width, np.int64)
    for group in programs:
        np.add.at(uses, group.predicates[:, 0], 1)
    return [int(column) for column in np.argsort(-uses, kind="stable")[:4] if uses[column]]


def _sample(entries: Entries) -> Entries:
    """A few thousand rows, whole stretches of neighbouring keys, so that groups stay together."""
    n = len(entries)
    if n <= _SLICES * _SLICE:
        return entries
    perm = sort_rows(np.ascontiguousarray(entries.keys), np.empty(0, np.int64))
    starts = np.linspace(0, n - _SLICE, _SLICES).astype(np.int64)
    return entries.take(np.concatenate([perm[start : start + _SLICE] for start in starts]))


def _visits(sample: Entries, queries: Entries, choice: Arrangement, programs: list[Programs]) -> int:
    tree = Tree.build(sample, choice, keyed=True)
    return sum(tree.count(queries, group)[1] for group in programs)
