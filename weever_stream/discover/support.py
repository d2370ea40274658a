"""Which pairs of rows test a rule: those that satisfy all its predicates but one, and have values for that one too.

The one left out is the rule's *conclusion*: what differs in `zip determines city`. A pair that satisfies the rest (the
*premise*) either violates the rule or satisfies the opposite of the conclusion. If a value of the conclusion is null it
does neither, as in SQL, and says nothing about the rule. So the support of a rule is its violations and the pairs that
satisfy its premise with the opposite of its conclusion. Both are counted as violations are: exactly, and without a list
of pairs. For a rule of one predicate the support is all pairs whose values are not null.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from weever_stream.check.count import count_rule
from weever_stream.rules.model import Op

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from weever_stream.discover.predicates import Space
    from weever_stream.discover.words import Saying
    from weever_stream.index.arrays import Ints

__all__ = ["add_support", "count_support", "estimate_support", "obeying"]

_ALL = 7


def obeying(space: Space, numbers: Sequence[int], saying: Saying) -> list[int]:
    """The predicates of pairs that test a rule and obey it: its premise, and the opposite of its conclusion."""
    end = _conclusion(space, numbers, saying)
    one = space.predicates[end]
    opposite = space.number[one.left, Op(_ALL & ~one.op.value), one.right]  # type: ignore[index]
    return sorted([*(at for at in numbers if at != end), opposite])


def count_support(space: Space, numbers: Sequence[int], saying: Saying, violations: int) -> int:
    """The support of a rule that has this many violations, in the unit in which those are counted."""
    others = obeying(space, numbers, saying)
    return add_support(space, numbers, others, violations, count_rule(space.rule(others), space.exact).violations)


def add_support(space: Space, numbers: Sequence[int], others: Sequence[int], violations: int, obey: int) -> int:
    """Violations of a rule and the pairs that obey it, added up.

    A symmetric set of predicates is counted once for both orders of a pair. Where the rule is not symmetric but the set
    of pairs that obey it is, those count twice, as they would as violations.
    """
    twice = space.rule(others).rule.symmetric and not space.rule(numbers).rule.symmetric
    return violations + obey * (2 if twice else 1)


def estimate_support(
    space: Space, numbers: Sequence[int], saying: Saying, outcomes: NDArray[np.uint8], pairs: Ints, rows: int
) -> int:
    """The support of a rule in a table of this many rows, according to the evidence of some of its pairs."""
    others = obeying(space, numbers, saying)
    total = max(1, int(pairs.sum()))
    violate, obey = (float(pairs[_satisfy(space, some, outcomes)].sum()) / total for some in (numbers, others))
    rule = space.rule(numbers).rule
    if rule.symmetric:
        violate, obey = violate / 2, obey / 2 if space.rule(others).rule.symmetric else obey
    return round((violate + obey) * (rows if rule.one_row else rows * (rows - 1)))


def _satisfy(space: Space, numbers: Sequence[int], outcomes: NDArray[np.uint8]) -> NDArray[np.bool_]:
    """Marks the outcomes that satisfy all of some predicates."""
    held = np.ones(len(outcomes), np.bool_)
    for at in numbers:
        holds = np.array([False, *(bool(space.ops[at] & bit) for bit in (1, 2, 4))])
        held &= holds[outcomes[:, space.comparison_of[at]]]
    return held


def _conclusion(space: Space, numbers: Sequence[int], saying: Saying) -> int:
    """What differs, else the last that is in order, else what is said to be unique."""

    def last(at: int) -> tuple[bool, bool, bool, int]:
        one = space.predicates[at]
        return one.op is Op.NE, one.op.is_order, saying.kind == "unique" and one.columns[0].name in saying.subject, at

    return max(numbers, key=last)
