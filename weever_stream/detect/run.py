"""A run: an immutable set of rows with a tree for every side that is stored, and the rows of it that have died since.

Rows keep their arrival order in `table`; trees refer to them by position. Everything but the set of dead rows is
fixed when the run is made, so a run can be written to a file once and shared. Merging reads two runs once and leaves
the dead behind; only a tree that has outgrown its arrangement is sorted again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from weever_stream.detect.rows import joined, take_rows
from weever_stream.index.arrangement import arrange, outgrown
from weever_stream.index.tree import ALIVE, FANOUT, LEAF, Arrangement, Entries, Kept, Tree
from weever_stream.index.tuples import TupleSet

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weever_stream.detect.plan import Plan, Probe
    from weever_stream.detect.rows import Rows
    from weever_stream.index.arrays import Bytes, Ints
    from weever_stream.index.arrays import Rows as Positions
    from weever_stream.index.tree import Pairs, Programs

__all__ = ["Run", "Shape", "probe_side"]


class Shape:
    """What all runs of a forest have in common: the plan's stored sides, their programs, leaf size and fan-out."""

    def __init__(self, plan: Plan, leaf: int = LEAF, fanout: int = FANOUT) -> None:
        self.plan = plan
        self.leaf, self.fanout = leaf, fanout
        self.stored = [number for number, side in enumerate(plan.sides) if side.stored]
        self._programs: list[list[Programs]] = [[] for _ in plan.sides]
        for probe in plan.probes:
            if probe.queries == probe.stored:
                self._programs[probe.stored].append(probe.programs)

    def arrange(self, side: int, entries: Entries) -> Arrangement:
        """The best arrangement of a side's entries."""
        return arrange(entries, self._programs[side])

    def trees(
        self, rows: Rows, like: Run | None, *, keys: Tree | None = None, by_key: bool = True
    ) -> tuple[Tree | None, ...]:
        """Trees of new rows, arranged like a larger run's where there is one, so that they can be merged with it.

        `keys` is the tree of the key side if it has been built; without `by_key` there is none.
        """
        trees: list[Tree | None] = [None] * len(rows.sides)
        for side in self.stored:
            if self.plan.sides[side].role == "key" and (keys is not None or not by_key):
                trees[side] = keys
                continue
            entries = rows.sides[side]
            larger = like.trees[side] if like is not None else None
            if larger is not None and larger.n >= len(entries) and larger.self_contained:
                trees[side] = self.build(side, entries, larger.arrangement, keep_cuts=False)
            else:
                trees[side] = self.build(side, entries, self.arrange(side, entries))
        return tuple(trees)

    def build(self, side: int, entries: Entries, arrangement: Arrangement, *, keep_cuts: bool = True) -> Tree:
        """A side's tree."""
        keyed = bool(self.plan.sides[side].equals)
        return Tree.build(entries, arrangement, keyed=keyed, keep_cuts=keep_cuts, leaf=self.leaf, fanout=self.fanout)


class Run:
    """An immutable set of rows, its trees, and its dead."""

    __slots__ = ("dead", "order", "serial", "table", "trees")

    def __init__(
        self,
        serial: int,
        table: pa.RecordBatch,
        order: Ints,
        trees: tuple[Tree | None, ...],
        dead: TupleSet | None = None,
    ) -> None:
        self.serial = serial
        self.table = table
        self.order = order
        self.trees = trees
        self.dead = dead or TupleSet(len(order))

    def __len__(self) -> int:
        return len(self.order)

    def take(self, rows: Positions, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """The values of some rows."""
        return take_rows(self.table, rows, columns)

    def numbers(self, rows: Positions) -> Ints:
        """A number for each of some rows that no other row of the shard has."""
        return rows.astype(np.int64) + (self.serial << 32)

    def probe(
        self, probe: Probe, queries: Entries, *, within: bool = False, rule: int | None = None
    ) -> Iterable[Pairs]:
        """Pairs of the queries with this run's living rows; `within`: the queries are rows of this run."""
        return probe_side(self.trees, probe, queries, within=within, rule=rule, dead=self.dead.mask)

    def merged(self, other: Run, serial: int, shape: Shape) -> Run:
        """One run of the living rows of two."""
        mine = self.dead.kept(0)
        theirs = other.dead.kept(len(self) - len(self.dead))
        larger, smaller = (self, other) if len(self) >= len(other) else (other, self)
        kept = (mine, theirs) if larger is self else (theirs, mine)
        trees: list[Tree | None] = [None] * len(self.trees)
        for side in shape.stored:
            trees[side] = _merged_tree(side, shape, larger.trees[side], kept[0], smaller.trees[side], kept[1])
        table = joined([_living(self), _living(other)])
        order = np.concatenate([_living_order(self), _living_order(other)])
        return Run(serial, table, order, tuple(trees))

    def rewritten(self, serial: int, shape: Shape) -> Run:
        """The same living rows without the dead."""
        kept = self.dead.kept(0)
        trees = tuple(_rewritten_tree(side, shape, tree, kept) for side, tree in enumerate(self.trees))
        return Run(serial, _living(self), _living_order(self), trees)

    def _check(self, shape: Shape) -> None:
        """Asserts every invariant of the run and its parts."""
        assert self.table.num_rows == len(self.order) == self.dead.n, "rows, sequence and dead are aligned"
        self.dead._check()
        for side, tree in enumerate(self.trees):
            assert (tree is not None) == (side in shape.stored), "every stored side has a tree"
            if tree is not None:
                tree._check()
                assert tree.n == 0 or tree.entries().rows.max() < len(self), "a tree's rows are the run's"


def probe_side(
    trees: Sequence[Tree | None],
    probe: Probe,
    queries: Entries,
    *,
    within: bool,
    rule: int | None = None,
    dead: Bytes = ALIVE,
) -> Iterable[Pairs]:
    """Pairs of the queries with the rows of the side that a probe walks."""
    tree = trees[probe.stored]
    assert tree is not None, "a side is probed only where it is stored"
    wanted = probe.wanted(within=within, rule=rule)
    return tree.probe(queries, probe.programs, wanted=wanted, within=within, dead=dead)


def _living(run: Run) -> pa.RecordBatch:
    return run.table if not len(run.dead) else run.table.filter(pa.array(run.dead.mask == 0))


def _living_order(run: Run) -> Ints:
    return run.order if not len(run.dead) else run.order[run.dead.mask == 0]


def _merged_tree(
    side: int, shape: Shape, larger: Tree | None, kept: Kept, smaller: Tree | None, smaller_kept: Kept
) -> Tree:
    """Merges two trees of a side; sorts again only what does not share the larger one's order or has outgrown it."""
    assert larger is not None
    assert smaller is not None
    alike = larger.tag == smaller.tag
    if outgrown(larger.arrangement, larger.n + smaller.n) or not (alike or larger.self_contained):
        entries = _together(_living_entries(larger, kept), _living_entries(smaller, smaller_kept))
        return shape.build(side, entries, shape.arrange(side, entries))
    if not alike:
        smaller = shape.build(side, smaller.entries(), larger.arrangement, keep_cuts=False)
    return larger.merged(kept, smaller, smaller_kept)


def _rewritten_tree(side: int, shape: Shape, tree: Tree | None, kept: Kept) -> Tree | None:
    if tree is None:
        return None
    entries = _living_entries(tree, kept)
    return shape.build(side, entries, tree.arrangement if tree.self_contained else shape.arrange(side, entries))


def _living_entries(tree: Tree, kept: Kept) -> Entries:
    entries = tree.entries()
    return entries.at(kept(entries.rows))


def _together(one: Entries, other: Entries) -> Entries:
    """All entries of two; gates that only one of them stores are open in the other."""
    width = max(one.matrix.shape[1], other.matrix.shape[1])
    room = [((0, 0), (0, width - entries.matrix.shape[1])) for entries in (one, other)]
    padded = [
        np.pad(entries.matrix, more, constant_values=-1) for entries, more in zip((one, other), room, strict=True)
    ]
    return Entries(np.concatenate(padded), np.concatenate([one.rows, other.rows]), one.equals, one.codes)
