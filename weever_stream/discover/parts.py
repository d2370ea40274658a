"""A table in parts, each small enough for one machine: what the pairs of one part tell about the whole.

The outcome of a comparison depends on two rows alone. So a part makes codes of its own for its own rows, with the
comparisons of the whole table, and the kernels of `evidence`, `completion` and `check` run on it as they do on a table.
If every pair of rows that satisfies a candidate lies in some part, and every part was asked about the candidate, then
either an evidence that some part gave breaks it, or it holds on the whole table.

Counts are put together by addition. Where two blocks of rows make up a part, the pairs within a block lie in other
parts too, and one part takes away what is counted too often. Cost: that of the same work on a table of the part's size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from weever_stream.check.count import count_rule
from weever_stream.discover.completion import Completion
from weever_stream.discover.evidence import Evidence
from weever_stream.discover.hydra import LISTED, Budget, scan
from weever_stream.discover.predicates import space_over
from weever_stream.discover.sampling import sample_random

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from numpy.typing import NDArray

    from weever_stream.discover.predicates import Comparison, Space
    from weever_stream.index.arrays import Ints

__all__ = ["SCANNED", "count_sets", "evidence_against"]

SCANNED = 1 << 24
"""Pairs of a part that are simply all looked at: a tenth of a second or so."""
_SAMPLE = 1 << 16
"""Random pairs from which a part tells what it would cost to settle a set."""


def evidence_against(
    table: pa.Table,
    comparisons: Sequence[Comparison],
    rules: NDArray[np.bool_],
    known: NDArray[np.uint64],
    *,
    seed: int = 0,
    scanned: int = SCANNED,
    listed: int = LISTED,
    go_on: Callable[[], bool] = lambda: True,
) -> tuple[NDArray[np.uint64], NDArray[np.bool_]]:
    """New evidence of a part: enough to break each rule that does not hold there; and the rules there was no time for.

    Evidence that is `known` breaks none of the rules, and is not told again.
    """
    space = space_over(table, comparisons)
    evidence, before = Evidence(space), _as_bytes(known)
    evidence.add_keys(known)
    if space.rows < 2:
        return evidence.keys[:0], np.zeros(len(rules), np.bool_)
    whole = space.rows * (space.rows - 1) // 2 <= scanned
    if whole and scan(space, evidence, Budget(None), lambda phase, done, total: None):
        return _news(evidence, before), np.zeros(len(rules), np.bool_)
    chance, sample = np.random.default_rng(seed), Evidence(space)
    sample_random(sample, space.rows, _SAMPLE, chance)
    evidence.add_keys(sample.keys)
    completion = Completion(space, evidence, sample.outcomes(), listed, chance, go_on)
    waiting = np.arange(len(rules))
    while True:
        waiting = waiting[_unbroken(space, _news(evidence, before), rules[waiting])]
        still = {row.tobytes() for row in completion.open(rules[waiting])}
        waiting = waiting[[rules[at].tobytes() in still for at in waiting]]
        if not len(waiting) or not go_on():
            break
        completion.settle(rules[waiting])
    undecided = np.zeros(len(rules), np.bool_)
    undecided[waiting] = True
    return _news(evidence, before), undecided


def _as_bytes(keys: NDArray[np.uint64]) -> set[bytes]:
    """Evidences as values that can be looked up."""
    return {key.tobytes() for key in keys}


def _news(evidence: Evidence, before: Collection[bytes]) -> NDArray[np.uint64]:
    """The evidences that were not known before."""
    keys = evidence.keys
    return keys[np.array([key.tobytes() not in before for key in keys], np.bool_)]


def _unbroken(space: Space, keys: NDArray[np.uint64], rules: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Marks the rules that no evidence satisfies."""
    evidence = Evidence(space)
    evidence.add_keys(keys)
    satisfied = space.satisfied(evidence.outcomes()[0])
    return np.array([not satisfied[:, rule].all(1).any() for rule in rules], np.bool_)


def count_sets(
    table: pa.Table,
    blocks: Ints,
    again: Mapping[int, int],
    comparisons: Sequence[Comparison],
    sets: Sequence[Sequence[int]],
) -> Ints:
    """What a part adds to the number of pairs that satisfy each set of predicates, counted as violations are.

    `blocks` tells the block of each row, and `again` how often the pairs within some of them are counted too often.
    """
    total = _counted(table, comparisons, sets)
    for block, times in again.items():
        if times:
            total -= times * _counted(table.filter(pa.array(blocks == block)), comparisons, sets)
    return total


def _counted(table: pa.Table, comparisons: Sequence[Comparison], sets: Sequence[Sequence[int]]) -> Ints:
    space = space_over(table, comparisons)
    return np.array([count_rule(space.rule(some), space.exact).violations for some in sets], np.int64)
