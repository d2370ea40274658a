"""Which rules are worth a person's time: interestingness, best first.

*Succinctness* and *coverage* are those of Chu, Ilyas and Papotti (2013): a short rule says more, and a rule that many
pairs come close to breaking, satisfying all but few of its predicates, is tested more. *Surprise* asks whether a rule
holds by accident: how many violations there would be if its predicates had nothing to do with each other. A rule that
should have a thousand and has none is real; one that should have none has not been tested. (A rule that may be broken a
little is measured by how far its violations stay below that.) Order predicates beyond two,
and order between different columns, count against a rule: they are where accidents live.

All shares are taken from evidence with its number of pairs: of every pair where those were scanned, else of the random
sample. Cost: linear in (rules) * (distinct evidences).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weever_stream.discover.predicates import Space
    from weever_stream.index.arrays import Ints

__all__ = ["Interest", "rank"]

_SHORTEST = 4
"""Symbols of the shortest rule: two rows, a column and an operator."""
_PLENTY = 4.0
"""Orders of magnitude of expected violations that say all."""
_LONG_ORDER, _CROSSED_ORDER = 0.08, 0.1
_EVIDENCES, _WEIGHED = 4096, 5000
"""Distinct evidences that stand for all of them, and rules that are looked at closely."""


@dataclass(frozen=True)
class Interest:
    """What makes a rule interesting, each from 0 to 1."""

    succinctness: float
    coverage: float
    surprise: float
    score: float


_UNWEIGHED = Interest(0.0, 0.0, 0.0, -1.0)


def rank(
    space: Space, rules: NDArray[np.bool_], outcomes: NDArray[np.uint8], pairs: Ints
) -> tuple[Ints, list[Interest]]:
    """The order of the rules, best first, and the interest of each. Of very many only the shortest are weighed."""
    if len(outcomes) > _EVIDENCES:
        drawn = np.random.default_rng(0).choice(len(outcomes), _EVIDENCES, p=pairs / pairs.sum())
        seen, times = np.unique(drawn, return_counts=True)
        outcomes, pairs = outcomes[seen], times.astype(np.int64)
    satisfied = space.satisfied(outcomes)
    shares = pairs / max(1, pairs.sum())
    alone = shares @ satisfied
    total = float(space.rows) * (space.rows - 1)
    weighed = np.zeros(len(rules), np.bool_)
    weighed[np.argsort(rules.sum(1), kind="stable")[:_WEIGHED]] = True
    found = [
        _interest(space, np.flatnonzero(rule), satisfied, shares, alone, total) if weighed[at] else _UNWEIGHED
        for at, rule in enumerate(rules)
    ]
    order = sorted(range(len(found)), key=lambda at: (-found[at].score, int(rules[at].sum()), at))
    return np.array(order, np.int64), found


def _interest(
    space: Space,
    numbers: Ints,
    satisfied: NDArray[np.bool_],
    shares: NDArray[np.float64],
    alone: NDArray[np.float64],
    total: float,
) -> Interest:
    mine = satisfied[:, numbers]
    held = mine.sum(1)
    predicates = [space.predicates[at] for at in numbers]
    columns = {column.name for p in predicates for column in p.columns}
    succinctness = _SHORTEST / (2 + len(columns) + len({p.op for p in predicates}))
    # a pair that satisfies k of n predicates counts (k + 1) / n; one that satisfies all breaks the rule
    near = held < len(numbers)
    coverage = float((shares * near * (held + 1)).sum() / len(numbers) / max(1e-12, (shares * near).sum()))
    broken = total * float(shares[~near].sum())
    surprise = float(broken == 0)
    if len(numbers) > 1:
        expected = min(
            total * float(shares[held - mine[:, at] == len(numbers) - 1].sum()) * float(alone[numbers[at]])
            for at in range(len(numbers))
        )
        unlike_chance = max(0.0, 1 - broken / expected) if expected else 0.0
        surprise = min(1.0, float(np.log10(1 + expected)) / _PLENTY) * unlike_chance
    orders = [p for p in predicates if p.op.is_order]
    crossed = sum(p.columns[0].name != p.columns[1].name for p in orders)
    score = 0.5 * min(1.0, succinctness) + 0.2 * coverage + 0.3 * surprise
    score -= _LONG_ORDER * max(0, len(orders) - 2) + _CROSSED_ORDER * crossed
    return Interest(min(1.0, succinctness), coverage, surprise, score)
