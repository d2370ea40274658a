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
from weever_stream.discover.support import estimate_support
from weever_stream.discover.words import understand
from weever_stream.learn.holding import Weight

if TYPE_CHECKING:
    from collections.abc import Sequence

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
    _, interests = rank(space, marks, outcomes, pairs, len(learner))
    weights = {}
    for rule, mark, interest in zip(rules, marks, interests, strict=True):
        numbers = [int(number) for number in np.flatnonzero(mark)]
        saying = understand([space.predicates[number] for number in numbers])
        support = estimate_support(space, numbers, saying, outcomes, pairs, len(learner))
        weights[rule.fingerprint] = Weight(interest.score, support)
    return weights
