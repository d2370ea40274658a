"""Counting the pairs of some rows without listing them.

`Census.partners` promises: for each of the rows how many pairs of a rule it makes with the rows that are held and with
the others of its own set. A node of a tree that matches whole adds its size, so a row with a million partners costs no
more than one with a few, and rows that ask the same question one after the other ask it once. Rows that are dead or do
not pass a gate keep nodes from matching whole; where many rows ask, a tree without those is made first.

Counting goes by codes. Equal hashes are taken for equal values, as they are for `!=`. A rule that puts texts or long
decimals in order cannot be counted so, for codes hold only their first bytes: its candidates are listed, a bounded
number at a time, and compared by value. That is exact too, but takes a time that grows with the pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from weever_stream.detect.filters import BY_CODE
from weever_stream.detect.found import resolve
from weever_stream.detect.tail import Tail
from weever_stream.index.probing import HALF
from weever_stream.index.sorting import sort_rows
from weever_stream.index.tree import ALIVE, Entries, Programs, Tree
from weever_stream.rules.model import Op

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weever_stream.detect.found import RowSet
    from weever_stream.detect.plan import Probe, Target
    from weever_stream.detect.rows import Rows
    from weever_stream.detect.run import Run, Shape
    from weever_stream.index.arrays import Bytes, Ints, Mask

__all__ = ["Census", "Count"]

_MANY = 128
"""For fewer rows that ask it does not pay to make a tree first."""


class Count(NamedTuple):
    """What a census says of one rule."""

    partners: Ints
    """Of each row."""
    pairs: int
    """In all, those among the rows themselves once."""


@dataclass(frozen=True, eq=False)
class _Part:
    """Rows that are counted in: their trees, which of them are dead, and trees of those that pass a gate."""

    rows: RowSet
    trees: tuple[Tree | None, ...]
    dead: Bytes
    passing: dict[tuple[int, int], Tree]


class Census:
    """The rows that are held, made ready for counting."""

    def __init__(self, shape: Shape, parts: Iterable[Run | Tail]) -> None:
        self._shape = shape
        self._parts = [_settled(part, shape) if isinstance(part, Tail) else _run(part) for part in parts]

    def partners(
        self, probes: Sequence[Probe], rule: int, rows: Rows, mine: RowSet, trees: tuple[Tree | None, ...]
    ) -> Count:
        """Counts the pairs of a rule as some probes find them; `rows` have `trees`, and `mine` gives their values."""
        partners, pairs = np.zeros(len(rows), np.int64), 0
        own = _Part(mine, trees, ALIVE, {})
        for probe in probes:
            queries = _queries(rows, trees, probe)
            for number, target in enumerate(probe.targets):
                if target.rule != rule or not len(queries):
                    continue
                for part in self._parts:
                    hits = self._hits(probe, number, queries, mine, part)
                    pairs += int(hits.sum())
                    partners[queries.rows] += hits
                hits = self._hits(probe, number, queries, mine, own)
                if not _by_value(target):
                    hits = hits - _itself(probe, number, queries, rows)
                partners[queries.rows] += hits
                if probe.programs.heads[number, 4] == HALF:
                    pairs += int(hits.sum()) // 2
                elif target.query_is_left:
                    pairs += int(hits.sum())
        return Count(partners, pairs)

    def _hits(self, probe: Probe, number: int, queries: Entries, mine: RowSet, part: _Part) -> Ints:
        """How many rows of a part each query matches."""
        tree, wanted = part.trees[probe.stored], 1 << number
        assert tree is not None, "a side is probed only where it is stored"
        if not tree.n:
            return np.zeros(len(queries), np.int64)
        if _by_value(probe.targets[number]):
            return self._compared(probe, wanted, queries, mine, part)
        gate = int(probe.programs.heads[number, 2])
        if len(queries) < _MANY or (tree.all_pass(gate) and not len(part.dead)):
            return tree.count(queries, probe.programs, wanted=wanted, dead=part.dead)[0]
        passing = part.passing.get((probe.stored, gate))
        if passing is None:
            passing = part.passing[probe.stored, gate] = self._passing(probe.stored, tree, gate, part.dead)
        return passing.count(queries, _ungated(probe.programs, number))[0]

    def _passing(self, side: int, tree: Tree, gate: int, dead: Bytes) -> Tree:
        """A tree of the living rows that pass a gate."""
        entries = tree.entries()
        passed = _open(entries, gate)
        if len(dead):
            passed &= dead[entries.rows] == 0
        entries = entries.take(np.flatnonzero(passed))
        return self._shape.build(side, entries, self._shape.arrange(side, entries))

    def _compared(self, probe: Probe, wanted: int, queries: Entries, mine: RowSet, part: _Part) -> Ints:
        """The same by value, candidate after candidate."""
        tree = part.trees[probe.stored]
        assert tree is not None
        hits = np.zeros(int(queries.rows.max()) + 1, np.int64)
        for pairs in tree.probe(queries, probe.programs, wanted=wanted, dead=part.dead):
            for found in resolve(pairs, probe, mine, queries.rows, part.rows, 1):
                left, right = found.left_rows, found.right_rows
                assert right is not None
                asked = left if probe.targets[int(pairs.program[0])].query_is_left else right
                hits += np.bincount(asked[left != right] if part.rows is mine else asked, minlength=len(hits))
        return hits[queries.rows]


def _by_value(target: Target) -> bool:
    """Whether codes are not enough to count by."""
    return any(said.op.is_order for said in target.verify)


def _queries(rows: Rows, trees: tuple[Tree | None, ...], probe: Probe) -> Entries:
    """The rows as they ask, equal questions behind each other."""
    tree = trees[probe.queries]
    entries = rows.sides[probe.queries] if tree is None else tree.entries()
    if tree is None:
        return entries.take(np.lexsort(entries.matrix.T[::-1]))
    if not entries.gates.shape[1] or not len(entries):
        return entries
    return entries.take(sort_rows(np.ascontiguousarray(entries.keys), np.ascontiguousarray(entries.gates[:, 0])))


def _ungated(programs: Programs, number: int) -> Programs:
    """One program, without a look at the gate of stored rows."""
    first, last, _, query_gate, meets = programs.heads[number].tolist()
    head = np.array([[0, last - first, -1, query_gate, meets]], np.int64)
    return Programs(head, programs.predicates[first:last])


def _itself(probe: Probe, number: int, queries: Entries, rows: Rows) -> Ints:
    """1 where a row matches itself, which is no pair."""
    stored = rows.sides[probe.stored]
    if not len(stored):
        return np.zeros(len(queries), np.int64)
    place = np.full(len(rows), -1, np.int64)
    place[stored.rows] = np.arange(len(stored))
    at = place[queries.rows]
    same: Mask = at >= 0
    keys = slice(0, 1 + stored.equals)
    same &= (queries.matrix[:, keys] == stored.matrix[at, keys]).all(axis=1)
    first, last, stored_gate, query_gate, _ = probe.programs.heads[number].tolist()
    for column, op, other in probe.programs.predicates[first:last].tolist():
        same &= BY_CODE[Op(op)](stored.values[at, column], queries.values[:, other])
    same &= _open(stored, stored_gate)[at] & _open(queries, query_gate)
    return same.astype(np.int64)


def _open(entries: Entries, gate: int) -> Mask:
    """Which entries pass a gate; those that store none pass all."""
    if gate < 0 or not entries.gates.shape[1]:
        return np.ones(len(entries), np.bool_)
    passed: Mask = (entries.gates[:, gate >> 6] >> np.int64(gate & 63)) & 1 > 0
    return passed


def _run(run: Run) -> _Part:
    return _Part(run, run.trees, run.dead.mask if len(run.dead) else ALIVE, {})


def _settled(tail: Tail, shape: Shape) -> _Part:
    """The living rows of the tail, as the run that they will be."""
    rows = tail.rows()
    if len(tail.dead):
        rows = rows.keep(tail.dead.mask[: tail.n] == 0)
    return _Part(rows, shape.trees(rows, None, by_key=False), ALIVE, {})
