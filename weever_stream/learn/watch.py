"""The pairs of rows that satisfy a set of predicates, as they come and go with rows: an LT-tree of growing runs.

For a set of predicates X and rows that come (or go): `pairs` lists exactly the pairs of these rows with each other and
with the rows held that satisfy X. A set that reads the same with t and s exchanged lists each pair once, any other
lists ordered pairs. Rows are known by numbers that never change, so trees of different age speak of the same rows; the
dead are marked in one mask for all. `Everything` is the set without a predicate, for tables that are small.

Cost: a probe of each tree for each row that comes or goes, the pairs listed, and merges: O(log n) a row.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from weever_stream.index.arrangement import arrange, outgrown
from weever_stream.index.hashing import keyed
from weever_stream.index.probing import HALF, OTHERS
from weever_stream.index.tree import Entries, Kept, Programs, Tree
from weever_stream.learn.labels import NULL

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from numpy.typing import NDArray

    from weever_stream.discover.predicates import Space
    from weever_stream.index.arrays import Bytes, Ints, Rows

__all__ = ["Everything", "Listing", "Watch"]

_RATIO = 3
"""A tree is merged with the next larger one unless that is at least so many times as large."""
_AT_ONCE = 1 << 20
_FEW = 1 << 12
"""Rows that are sorted again when trees are merged: to merge them takes a look at the numbers of all rows."""
_AS_THEY_ARE = Kept(np.empty(0, np.int32))


class Listing(Protocol):
    """What lists the pairs of a set of predicates."""

    def add(self, codes: NDArray[np.int32], rows: Rows, dead: Bytes) -> None:
        """Rows are held from now on."""

    def pairs(self, codes: NDArray[np.int32], rows: Rows, dead: Bytes) -> Iterator[tuple[Rows, Rows]]:
        """Pairs of some rows with each other and with the rows held; those among the held must be marked as dead."""


class Everything:
    """All pairs."""

    def __init__(self) -> None:
        self._held: Rows = np.empty(0, np.int32)

    def add(self, codes: NDArray[np.int32], rows: Rows, dead: Bytes) -> None:
        """Rows are held from now on."""
        self._held = np.concatenate([self._held[dead[self._held] == 0], rows])

    def pairs(self, codes: NDArray[np.int32], rows: Rows, dead: Bytes) -> Iterator[tuple[Rows, Rows]]:
        """Every pair that has one of the rows."""
        held = self._held[dead[self._held] == 0] if len(dead) else self._held
        for some in np.array_split(rows, max(1, len(rows) * len(held) // _AT_ONCE)):
            yield np.repeat(some, len(held)), np.tile(held, len(some))
        one, other = np.triu_indices(len(rows), 1)
        yield rows[one], rows[other]

    def _check(self, dead: Bytes, alive: Rows) -> None:
        """Asserts that the rows held are those that live."""
        assert set(self._held[dead[self._held] == 0].tolist()) == set(alive.tolist()), "all that live are held"


class Watch:
    """The pairs of one set of predicates across two rows."""

    def __init__(self, space: Space, numbers: Sequence[int]) -> None:
        """`space`: the comparisons, of columns that are named by their numbers among the codes."""
        said = [(space.comparisons[space.comparison_of[at]], space.predicates[at].op) for at in numbers]
        said.sort(key=lambda one: one[1].symbol != "=")
        equal = sum(op.symbol == "=" for _, op in said)
        self._left = np.array([int(one.left.name) for one, _ in said], np.int64)
        self._right = np.array([int(one.right.name) for one, _ in said], np.int64)
        self._equal = equal
        # A hash of one number is as good as the number.
        self._stored_equal = equal if equal > 1 else 0
        self._symmetric = {*numbers} == {int(space.exchanged[at]) for at in numbers}
        self._same = bool((self._left == self._right).all())
        ops = [op for _, op in said[equal:]]
        self._asking_left = self._program([op.flipped().value for op in ops])
        self._asking_right = self._program([op.value for op in ops])
        self._rights: list[Tree] = []
        self._lefts: list[Tree] = []

    def _program(self, ops: list[int]) -> Programs:
        predicates = np.array([(at, op, at) for at, op in enumerate(ops)], np.int64).reshape(-1, 3)
        return Programs(np.array([(0, len(ops), -1, -1, HALF if self._symmetric else OTHERS)], np.int64), predicates)

    def _entries(self, codes: NDArray[np.int32], rows: Rows, columns: Ints) -> Entries:
        """The rows as one side sees them: those without a null."""
        told = codes[rows][:, columns].astype(np.int64)
        kept = (told != NULL).all(1)
        if not kept.all():
            told, rows = told[kept], rows[kept]
        first, size = self._equal - self._stored_equal, len(columns)
        matrix = keyed(np.ascontiguousarray(told), np.arange(self._equal), np.arange(first, size))
        return Entries(matrix, np.ascontiguousarray(rows), self._stored_equal, size - self._equal)

    def add(self, codes: NDArray[np.int32], rows: Rows, dead: Bytes) -> None:
        """Rows are held from now on."""
        self._grow(self._rights, self._entries(codes, rows, self._right), self._asking_left, dead)
        if not self._same and not self._symmetric:
            self._grow(self._lefts, self._entries(codes, rows, self._left), self._asking_right, dead)

    def _grow(self, trees: list[Tree], entries: Entries, program: Programs, dead: Bytes) -> None:
        """Adds a tree, the smallest last, and merges until sizes grow geometrically again."""
        if not len(entries):
            return
        like = trees[0] if trees and trees[0].n >= len(entries) else None
        arrangement = like.arrangement if like is not None else arrange(entries, [program])
        trees.append(Tree.build(entries, arrangement, keyed=self._equal > 0))
        while len(trees) > 1 and trees[-2].n < _RATIO * trees[-1].n:
            smaller, larger = sorted((trees.pop(), trees.pop()), key=lambda tree: tree.n)
            trees.append(self._merged(larger, smaller, program, dead))

    def _merged(self, larger: Tree, smaller: Tree, program: Programs, dead: Bytes) -> Tree:
        anew = outgrown(larger.arrangement, larger.n + smaller.n) or not larger.self_contained
        if anew or larger.n <= _FEW:
            both = [tree.entries() for tree in (larger, smaller)]
            matrix, rows = (np.concatenate([getattr(one, name) for one in both]) for name in ("matrix", "rows"))
            entries = Entries(matrix, rows, both[0].equals, both[0].codes).take(np.flatnonzero(dead[rows] == 0))
            arrangement = arrange(entries, [program]) if anew else larger.arrangement
            return Tree.build(entries, arrangement, keyed=self._equal > 0)
        kept = _AS_THEY_ARE
        if dead.any():
            kept = Kept(np.where(dead, np.int32(-1), np.arange(len(dead), dtype=np.int32)))
        if larger.tag != smaller.tag:
            smaller = Tree.build(smaller.entries(), larger.arrangement, keyed=self._equal > 0)
        return larger.merged(kept, smaller, kept)

    def pairs(self, codes: NDArray[np.int32], rows: Rows, dead: Bytes) -> Iterator[tuple[Rows, Rows]]:
        """Pairs of some rows with each other and with the rows held; those among the held must be marked as dead."""
        asking = self._entries(codes, rows, self._left)
        for tree in self._rights:
            for found in tree.probe(asking, self._asking_left, dead=dead, limit=_AT_ONCE):
                yield asking.rows[found.query], found.row
        asked = asking if self._same else self._entries(codes, rows, self._right)
        if not self._symmetric:
            for tree in self._rights if self._same else self._lefts:
                for found in tree.probe(asked, self._asking_right, dead=dead, limit=_AT_ONCE):
                    yield found.row, asked.rows[found.query]
        if len(asked):
            among = Tree.build(asked, arrange(asked, [self._asking_left]), keyed=self._equal > 0)
            for found in among.probe(asking, self._asking_left, within=True, limit=_AT_ONCE):
                yield asking.rows[found.query], found.row

    def _check(self, dead: Bytes, alive: Rows) -> None:
        """Asserts that every tree is sound and that a row that lives is held once."""
        for trees in (self._rights, self._lefts):
            rows = [tree.entries().rows for tree in trees]
            held = np.concatenate(rows) if rows else np.empty(0, np.int32)
            assert len(np.unique(held)) == len(held), "a row is held once"
            assert set(held[dead[held] == 0].tolist()) <= set(alive.tolist()), "no row is held that does not live"
            for tree in trees:
                tree._check()
