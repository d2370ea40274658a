"""Which sets of predicates to watch, so that no pair can break a rule unseen; and what their pairs say.

A rule is safe if every pair that would break it satisfies a watched set (`discover.settled`). Few sets are wanted that
are safe for many rules, and each should have few pairs: equalities of columns with many values first, then pairs of
orders that few rows satisfy. Sets that discovery settled are a good choice to begin with; of them those go, dearest
first, without which all rules are still safe. Sets that rules are refined under stay good for the refined ones.

Cost: a sample of pairs to estimate by; then for each set a pass over its pairs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weever_stream.discover.completion import Completion
from weever_stream.discover.evidence import Evidence
from weever_stream.discover.hydra import LISTED
from weever_stream.discover.sampling import sample_random
from weever_stream.discover.settled import Settled

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from weever_stream.discover.predicates import Space
    from weever_stream.index.arrays import Ints

__all__ = ["EVERYTHING", "evidence_of", "marks_of", "needed", "sampled_pairs", "settle"]

EVERYTHING: tuple[int, ...] = ()
"""The set without a predicate, which all pairs satisfy: for tables that are small."""
_ALL = 1 << 62
"""Pairs of a set that is counted: however many there are."""
_SAMPLE = 1 << 18
_PROBE, _PAIR = 2500.0, 25.0
"""Nanoseconds for a row to probe a set's trees, and for a pair that is listed."""


def marks_of(space: Space, sets: Sequence[Sequence[int]]) -> NDArray[np.bool_]:
    """Sets of predicates as rows of marks."""
    marks = np.zeros((len(sets), len(space.predicates)), np.bool_)
    for at, numbers in enumerate(sets):
        marks[at, list(numbers)] = True
    return marks


def sampled_pairs(space: Space, chance: np.random.Generator) -> Evidence:
    """Evidence of random pairs, to estimate by."""
    evidence = Evidence(space)
    sample_random(evidence, space.rows, _SAMPLE, chance)
    return evidence


def needed(
    space: Space,
    settled: Sequence[tuple[int, ...]],
    rules: NDArray[np.bool_],
    sample: tuple[NDArray[np.uint8], Ints],
    kept: Sequence[tuple[int, ...]] = (),
) -> list[tuple[int, ...]]:
    """Of sets that are safe for some rules together with those `kept`, such that none can be left out."""
    left = list(dict.fromkeys(settled))
    costs = {some: _cost(space, some, sample) for some in left}
    for some in sorted(left, key=lambda one: -costs[one]):
        trial = Settled(space)
        for marks in marks_of(space, [*kept, *(one for one in left if one != some)]):
            trial.add(marks)
        if not trial.undecided(rules).any():
            left.remove(some)
    return left


def _cost(space: Space, some: tuple[int, ...], sample: tuple[NDArray[np.uint8], Ints]) -> float:
    """Nanoseconds that a change costs under a set, as the sample tells."""
    outcomes, pairs = sample
    held = np.ones(len(outcomes), np.bool_)
    for at in some:
        told = np.array([False, *(bool(space.ops[at] & bit) for bit in (1, 2, 4))])
        held &= told[outcomes[:, space.comparison_of[at]]]
    share = float(pairs[held].sum()) / max(1, int(pairs.sum()))
    return _PROBE + share * space.rows * _PAIR


def evidence_of(space: Space, some: tuple[int, ...], chance: np.random.Generator) -> Evidence:
    """The evidence of all pairs that satisfy a set."""
    evidence = Evidence(space)
    if some == EVERYTHING:
        evidence.add_pairs(*np.triu_indices(space.rows, 1))
        return evidence
    nothing = Evidence(space).outcomes()
    whole = Completion(space, evidence, nothing, _ALL, chance).take(some)
    assert whole, "there is no limit"
    return evidence


def settle(
    space: Space, rules: NDArray[np.bool_], sample: Evidence, chance: np.random.Generator
) -> list[tuple[int, ...]]:
    """Sets that are safe for rules which hold."""
    completion = Completion(space, Evidence(space), sample.outcomes(), LISTED, chance)
    while len(waiting := completion.open(rules)):
        before = len(completion.taken)
        completion.settle(waiting)
        assert len(completion.taken) > before, "a rule that holds can be settled"
    return completion.taken
