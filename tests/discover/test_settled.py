"""Settled sets decide together what none decides alone, and a null keeps them from it."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from weever_stream.discover.predicates import Options, Space, space_of
from weever_stream.discover.settled import Settled
from weever_stream.rules import parse_rule


def marks(space: Space, deny: str) -> np.ndarray:
    chosen = np.zeros(len(space.predicates), np.bool_)
    for p in parse_rule(deny).predicates:
        chosen[space.number[p.left, p.op, p.right]] = True
    return chosen


@pytest.mark.parametrize(("last", "decided"), [(3, True), (None, False)])
def test_all_outcomes_of_a_comparison_decide_unless_it_may_have_none(last: int | None, decided: bool) -> None:
    space = space_of(pa.table({"a": [1, 1, 2], "b": [1, 2, last]}), Options(cross=False))
    settled = Settled(space)
    rule = marks(space, "t.a = s.a")[None]
    settled.add(marks(space, "t.a = s.a and t.b < s.b"))
    assert settled.undecided(rule).all(), "b may be equal"
    settled.add(marks(space, "t.a = s.a and t.b = s.b"))
    assert settled.undecided(rule).all() == (not decided)
