"""The truth about small tables: all subsets of the predicates against all pairs of rows, in plain Python.

Nothing here knows of evidence codes, hitting sets or closures by chains of `<=`. A predicate is evaluated by the oracle of
the other tests, and what follows from a set of predicates is read off a list of all ways in which its operands can stand.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING

from tests.oracle import satisfies

if TYPE_CHECKING:
    import pyarrow as pa

    from weever_stream.discover.predicates import Space
    from weever_stream.rules import Predicate

__all__ = ["Brute"]


class Brute:
    """The minimal rules of a table over a space of a dozen predicates. Sets of predicates are the bits of a number."""

    def __init__(self, space: Space, table: pa.Table) -> None:
        self.space = space
        self.size = len(space.predicates)
        rows = table.to_pylist()
        self.seen = {
            (t, s): self._bits(lambda p, t=t, s=s: satisfies(*_values(p, rows[t], rows[s])))
            for t in range(len(rows))
            for s in range(len(rows))
            if t != s
        }
        self.evidence = set(self.seen.values())
        self.ways = self._all_ways()

    def rules(self) -> set[int]:
        """Every most general valid set that is not trivial, as the smaller closure of it and of its exchange."""
        sets = range(1, 1 << self.size)
        if not self.evidence:
            return set()
        valid = [some for some in sets if not any(some & seen == some for seen in self.evidence)]
        closed = {some: self.closure(some) for some in valid}
        sound = [some for some in valid if closed[some] is not None]
        classes = {self.canonical(some) for some in sound}
        # the most general closures: none that says less lies in them, one way round or the other
        least = {self.closure(some) for some in _smallest(sound)}
        general = set()
        for one in classes:
            implying = {c for c in (self.canonical_of(c) for c in least) if c != one and self._implies(c, one)}
            if not any(not self._implies(one, other) for other in implying):
                general.add(one)
        return general

    def canonical(self, some: int) -> int:
        """One number for all sets that say the same."""
        closed = self.closure(some)
        assert closed is not None
        return self.canonical_of(closed)

    def canonical_of(self, closed: int) -> int:
        return min(closed, self._exchanged(closed))

    def closure(self, some: int) -> int | None:
        """What holds in every way in which the set holds; None if there is no such way."""
        found = None
        for way in self.ways:
            if way & some == some:
                found = way if found is None else found & way
        return found

    def _implies(self, closed: int, other: int) -> bool:
        """Whether all that `other` denies is denied by `closed`, both being closures."""
        return closed & other == closed or self._exchanged(closed) & other == self._exchanged(closed)

    def _exchanged(self, some: int) -> int:
        return sum(1 << int(self.space.exchanged[at]) for at in range(self.size) if some >> at & 1)

    def _bits(self, holds: object) -> int:
        return sum(1 << at for at, p in enumerate(self.space.predicates) if holds(p))  # type: ignore[operator]

    def _all_ways(self) -> set[int]:
        """The predicates that hold, for all ways to put values or nulls in the columns of two rows."""
        parts: dict[frozenset[str], list[int]] = {}
        for at, predicate in enumerate(self.space.predicates):
            parts.setdefault(frozenset(c.name for c in predicate.columns), []).append(at)
        columns = sorted({name for part in parts for name in part})
        groups = [columns] if any(len(part) > 1 for part in parts) else [[name] for name in columns]
        ways = {0}
        for group in groups:
            mine = [at for part, numbers in parts.items() if part <= set(group) for at in numbers]
            values = [None, *range(2 * len(group))]
            found = set()
            for chosen in product(values, repeat=2 * len(group)):
                t, s = dict(zip(group, chosen, strict=False)), dict(zip(group, chosen[len(group) :], strict=False))
                found.add(sum(1 << at for at in mine if satisfies(*_values(self.space.predicates[at], t, s))))
            ways = {one | other for one in ways for other in found}
        return ways


def _values(predicate: Predicate, t: dict, s: dict) -> tuple:
    left, right = predicate.columns
    rows = {"t": t, "s": s}
    return rows[left.row][left.name], predicate.op, rows[right.row][right.name]


def _smallest(sets: list[int]) -> list[int]:
    """The sets that hold no other."""
    kept: list[int] = []
    for some in sorted(sets, key=int.bit_count):
        if not any(other & some == other for other in kept):
            kept.append(some)
    return kept
