"""How much learned rules say, as `discover` ranks them: short, close to being broken by many pairs, not by chance.

Weighed on a sample of rows, all pairs of it, and not again while a rule holds: a batch pays for the rules that it
brings. So scores tell which rules to look at first, and supports are estimates. Cost: one pass over the learner's rows
to draw the sample, then some two million pairs: tenths of a second.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from weever_stream.discover.budget import Budget
from weever_stream.discover.evidence import Evidence
from weever_stream.discover.hydra import scan
from weever_stream.discover.predicates import space_over
from weever_stream.discover.ranking import rank
from weever_stream.discover.run import premise_of
from weever_stream.discover.words import understand
from weever_stream.learn.holding import Weight

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from weever_stream.discover.predicates import Space
    from weever_stream.index.arrays import Ints
    from weever_stream.learn.learner import Learner
    from weever_stream.rules.model import Rule

__all__ = ["weigh"]

_ROWS = 2000


def weigh(learner: Learner, rules: Sequence[Rule], *, rows: int = _ROWS, seed: int = 0) -> dict[str, Weight]:
    """The weights of rules that the learner has told, by fingerprint."""
    if not rules or len(learner) < 2:
        return {}
    table = learner.table()
    if table.num_rows > rows:
        drawn = np.random.default_rng(seed).choice(table.num_rows, rows, replace=False)
        table = table.take(pa.array(np.sort(drawn)))
    space = space_over(table, learner.comparisons)
    marks = np.zeros((len(rules), len(space.predicates)), np.bool_)
    for at, rule in enumerate(rules):
        marks[at, [space.number[one.left, one.op, one.right] for one in rule.predicates]] = True  # type: ignore[index]
    evidence = Evidence(space)
    scan(space, evidence, Budget(None), lambda phase, done, total: None)
    outcomes, pairs = evidence.outcomes()
    _, interests = rank(space, marks, outcomes, pairs)
    every = len(learner) * (len(learner) - 1)
    return {
        rule.fingerprint: Weight(interest.score, round(_share(space, mark, outcomes, pairs) * every))
        for rule, mark, interest in zip(rules, marks, interests, strict=True)
    }


def _share(space: Space, marks: NDArray[np.bool_], outcomes: NDArray[np.uint8], pairs: Ints) -> float:
    """The share of ordered pairs that satisfy a rule's premise, counted as `discover` counts support."""
    numbers = [int(number) for number in np.flatnonzero(marks)]
    saying = understand([space.predicates[number] for number in numbers])
    premise = premise_of(space, numbers, saying)
    once = not premise or space.rule(premise).rule.symmetric
    held = np.ones(len(outcomes), np.bool_)
    for at in premise:
        told = np.array([False, *(bool(space.ops[at] & bit) for bit in (1, 2, 4))])
        held &= told[outcomes[:, space.comparison_of[at]]]
    return float(pairs[held].sum()) / max(1, int(pairs.sum())) / (2 if once else 1)
