"""Pairs as the engine finds them: positions in two sets of rows, not yet read, named or printed.

A `Found` is cheap to keep (eight bytes a pair) and can be read at any time later, because the rows it points into
never change. `cancel` nets the pairs that one batch both removed and added: a pair is the same pair if both rows have
the same keys, whatever their values became.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
import pyarrow as pa

from weever_stream.detect.filters import BY_CODE, compare_values
from weever_stream.index.arrays import numbers
from weever_stream.index.codes import in_domain, ranks
from weever_stream.rules.model import Column

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from weever_stream.detect.plan import Probe, Target
    from weever_stream.index.arrays import Ints, Mask, Rows
    from weever_stream.index.tree import Pairs
    from weever_stream.rules.bind import TypedPredicate

__all__ = ["Found", "RowSet", "cancel", "confirmed", "resolve"]


class RowSet(Protocol):
    """Rows that pairs point into: a run, the tail, or the rows of a batch."""

    def take(self, rows: Rows, columns: Sequence[str] | None = None) -> pa.RecordBatch:
        """The values of some of them."""
        ...

    def numbers(self, rows: Rows) -> Ints:
        """Numbers of some of them, one and the same for the old and the new row of a key within a batch."""
        ...


@dataclass(slots=True, eq=False)
class Found:
    """Pairs of one rule, (left row, right row); a rule on one row has no right rows."""

    rule: int
    sign: int
    """+1 added, -1 removed."""
    left: RowSet
    left_rows: Rows
    right: RowSet | None = None
    right_rows: Rows | None = None

    def __len__(self) -> int:
        return len(self.left_rows)

    def take(self, which: Mask | Ints) -> Found:
        """Some of the pairs."""
        right = None if self.right_rows is None else self.right_rows[which]
        return Found(self.rule, self.sign, self.left, self.left_rows[which], self.right, right)

    def identities(self, *, symmetric: bool) -> Ints:
        """n x 2 row numbers, in rising order where the rule does not tell left from right."""
        left = self.left.numbers(self.left_rows)
        right = left if self.right is None or self.right_rows is None else self.right.numbers(self.right_rows)
        pairs = np.stack([left, right], 1)
        return np.sort(pairs, 1) if symmetric else pairs


def resolve(
    pairs: Pairs, probe: Probe, queries: RowSet, query_rows: Rows, stored: RowSet, sign: int
) -> Iterator[Found]:
    """Pairs of a probe as the pairs of its rules, candidates confirmed by their values."""
    for number, which in _by_program(pairs, len(probe.targets)):
        target = probe.targets[number]
        mine, theirs = query_rows[pairs.query], pairs.row
        if which is not None:
            mine, theirs = mine[which], theirs[which]
        if target.query_is_left:
            found = Found(target.rule, sign, queries, mine, stored, theirs)
        else:
            found = Found(target.rule, sign, stored, theirs, queries, mine)
        if target.verify:
            assert found.right is not None
            assert found.right_rows is not None
            found = found.take(confirmed(target, found.left, found.left_rows, found.right, found.right_rows))
        if len(found):
            yield found


def _by_program(pairs: Pairs, programs: int) -> Iterator[tuple[int, Mask | None]]:
    """Which pairs each program found; None for all of them. Single rows mostly find pairs of a single program."""
    first = int(pairs.program[0])
    if programs == 1 or len(pairs) == 1 or (pairs.program == first).all():
        yield first, None
        return
    for number in np.flatnonzero(np.bincount(pairs.program)).tolist():
        yield number, pairs.program == number


def confirmed(target: Target, left: RowSet, left_rows: Rows, right: RowSet, right_rows: Rows) -> Mask:
    """Which candidate pairs satisfy the predicates that codes could not decide."""
    kept = np.ones(len(left_rows), np.bool_)
    for predicate in target.verify:
        assert isinstance(predicate.right, Column)
        names = [predicate.left.name], [predicate.right.name]
        if len(left_rows) <= _FEW:
            one, other = left.take(left_rows, names[0]).column(0), right.take(right_rows, names[1]).column(0)
            kept &= compare_values(one, predicate.op, other, predicate.domain)
            continue
        # Every row is read once, however many pairs it is in, and pairs compare the places of its values.
        ours, at_ours = np.unique(left_rows, return_inverse=True)
        theirs, at_theirs = np.unique(right_rows, return_inverse=True)
        values = [left.take(ours, names[0]).column(0), right.take(theirs, names[1]).column(0)]
        places = _places(values, predicate)
        kept &= BY_CODE[predicate.op](places[at_ours], places[len(ours) + at_theirs])
    return kept


_FEW = 8


def _places(values: Sequence[pa.Array], predicate: TypedPredicate) -> Ints:
    """Numbers that compare as the values do: ranks where the predicate is one of order, else places in a dictionary."""
    plain = [in_domain(array, predicate.domain) for array in values]
    if plain[0].type != plain[1].type:
        plain = [array.cast(pa.large_string()) for array in plain]
    coded = pa.concat_arrays(plain).dictionary_encode()
    places = numbers(coded.indices, "i").astype(np.int64)
    return ranks(coded.dictionary)[places] if predicate.op.is_order else places


def cancel(removed: Sequence[Found], added: Sequence[Found], symmetric: Sequence[bool]) -> Iterator[Found]:
    """What is left of removals and additions once the pairs that are in both are taken out of both."""
    for rule in sorted({found.rule for found in (*removed, *added)}):
        before = [found for found in removed if found.rule == rule]
        after = [found for found in added if found.rule == rule]
        gone, come = _identities(before, symmetric[rule]), _identities(after, symmetric[rule])
        pairs = _one_number(np.concatenate([gone, come]))
        yield from _without(before, ~np.isin(pairs[: len(gone)], pairs[len(gone) :]))
        yield from _without(after, ~np.isin(pairs[len(gone) :], pairs[: len(gone)]))


def _identities(pieces: Iterable[Found], symmetric: bool) -> Ints:
    pairs = [found.identities(symmetric=symmetric) for found in pieces]
    return np.concatenate(pairs) if pairs else np.empty((0, 2), np.int64)


def _without(pieces: Iterable[Found], kept: Mask) -> Iterator[Found]:
    at = 0
    for found in pieces:
        left = found.take(kept[at : at + len(found)])
        at += len(found)
        if len(left):
            yield left


def _one_number(pairs: Ints) -> Ints:
    """One number a pair, equal for equal pairs."""
    distinct, place = np.unique(pairs, return_inverse=True)
    left, right = place.reshape(pairs.shape).T
    number: Ints = left * np.int64(len(distinct)) + right
    return number
