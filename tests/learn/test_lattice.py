"""Rules that follow evidence step by step are those of inverting all evidence at once.

Catches: a refinement that is lost, not minimal or longer than asked for; one that an unbroken rule already says; a rule
that does not come back with the evidence that forbade it, or comes back beside a less general one.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from weever_stream.discover.inversion import invert
from weever_stream.discover.predicates import Options, Space, space_of
from weever_stream.learn.lattice import ANYTHING, Lattice

TABLES = {
    "numbers": pa.table({"a": [1, 2], "b": [1, 2], "c": [1, 2]}),
    "texts": pa.table({name: ["x", "y"] for name in "abcdef"}),
    "mixed": pa.table({"a": [1, 2], "b": ["x", "y"], "c": [1.5, 2.5], "d": [True, False]}),
}
SPACES: dict[str, Space] = {
    **{name: space_of(table, Options(cross=False)) for name, table in TABLES.items()},
    "meeting": space_of(TABLES["numbers"].select(["a", "b"]), Options(shared=0)),
}


@st.composite
def evidences(draw: st.DrawFn) -> tuple[Space, np.ndarray, int | None]:
    """Outcomes of all comparisons, a row each, with few or many nulls; and how many predicates a rule may have."""
    space = SPACES[draw(st.sampled_from(sorted(SPACES)))]
    nulls = draw(st.sampled_from([0.0, 0.1, 0.6]))
    chance = np.random.default_rng(draw(st.integers(0, 2**32)))
    size = draw(st.integers(0, 40))
    ordered = np.array([one.ordered for one in space.comparisons])
    outcomes = chance.integers(1, np.where(ordered, 4, 3), (size, len(ordered))).astype(np.uint8)
    outcomes[chance.random(outcomes.shape) < nulls] = 0
    return space, np.unique(outcomes, axis=0), draw(st.sampled_from([None, 1, 2, 3]))


def names(boxes: np.ndarray) -> set[bytes]:
    found = {box.tobytes() for box in boxes}
    assert len(found) == len(boxes), "no box is there twice"
    return found


def minimal_by_hand(space: Space, outcomes: np.ndarray, most: int) -> set[bytes]:
    """All boxes of up to so many comparisons that no evidence lies in, and in no other such box."""
    lattice = Lattice(space, most)
    bits = lattice.bits(outcomes)
    level = [np.full(len(space.comparisons), ANYTHING, np.uint8)]
    valid: list[np.ndarray] = []
    seen = {level[0].tobytes()}
    while level:
        following = []
        for box in level:
            inside = (bits & ~box == 0).all(1)
            if not inside.any():
                valid.append(box)
                continue
            for at, one in enumerate(space.comparisons):
                for op in (op.value for op in one.ops):
                    if op != box[at] and op & ~box[at] == 0:
                        smaller = box.copy()
                        smaller[at] = op
                        if (smaller != ANYTHING).sum() <= most and smaller.tobytes() not in seen:
                            seen.add(smaller.tobytes())
                            following.append(smaller)
        level = following
    return {
        box.tobytes() for box in valid if not any(other is not box and (box & ~other == 0).all() for other in valid)
    }


@settings(max_examples=80)
@given(evidences(), st.integers(1, 7))
def test_refining_step_by_step_is_inverting_anew(case: tuple[Space, np.ndarray, int | None], step: int):
    space, outcomes, most = case
    lattice = Lattice(space, most)
    boxes = lattice.inverted(outcomes[:0])
    assert (boxes == ANYTHING).all()
    assert len(boxes) == 1, "without evidence all is forbidden"
    for first in range(0, len(outcomes), step):
        boxes = lattice.refined(boxes, outcomes[first : first + step])
        assert names(boxes) == names(lattice.inverted(outcomes[: first + step]))
    assert (lattice.broken(boxes, outcomes) == -1).all()
    assert names(boxes) == names(lattice.boxes(invert(space, outcomes, most)))


@settings(max_examples=15)
@given(evidences())
def test_inverting_is_what_a_search_by_hand_finds(case: tuple[Space, np.ndarray, int | None]):
    space, outcomes, most = case
    most = min(most or 2, 2)
    assert names(Lattice(space, most).inverted(outcomes)) == minimal_by_hand(space, outcomes, most)


@settings(max_examples=80)
@given(evidences(), st.data())
def test_taking_evidence_away_is_inverting_the_rest(case: tuple[Space, np.ndarray, int | None], data: st.DataObject):
    space, outcomes, most = case
    lattice = Lattice(space, most)
    boxes = lattice.inverted(outcomes)
    while len(outcomes):
        going = data.draw(st.integers(1, min(4, len(outcomes))))
        lost, outcomes = outcomes[:going], outcomes[going:]
        back = lattice.returned(lost, outcomes)
        assert back is not None
        assert (lattice.broken(back, lost) >= 0).all(), "what comes back was forbidden by what went"
        boxes = np.concatenate([lattice.without_less_general(boxes, back), back])
        assert names(boxes) == names(lattice.inverted(outcomes))


@settings(max_examples=40)
@given(evidences(), st.integers(0, 20), st.integers(0, 20))
def test_coming_and_going_at_once_is_inverting_what_is_left(
    case: tuple[Space, np.ndarray, int | None], old: int, went: int
):
    space, outcomes, most = case
    np.random.default_rng(old).shuffle(outcomes)
    lattice = Lattice(space, most)
    came, kept, lost = outcomes[old:], outcomes[went:old], outcomes[: min(went, old)]
    boxes = lattice.refined(lattice.inverted(outcomes[:old]), came)
    left = np.concatenate([kept, came])
    back = lattice.returned(lost, left)
    assert back is not None
    boxes = np.concatenate([lattice.without_less_general(boxes, back), back])
    assert names(boxes) == names(lattice.inverted(left))


@pytest.mark.parametrize("name", sorted(SPACES))
def test_boxes_and_rules_are_each_others_picture(name: str):
    space = SPACES[name]
    lattice = Lattice(space, None)
    every = np.eye(len(space.predicates), dtype=np.bool_)
    boxes = lattice.boxes(every)
    assert (lattice.rules(boxes) == every).all()
    chance = np.random.default_rng(3)
    ordered = np.array([one.ordered for one in space.comparisons])
    outcomes = chance.integers(0, np.where(ordered, 4, 3), (50, len(ordered))).astype(np.uint8)
    held = space.satisfied(outcomes)
    inside = (lattice.bits(outcomes)[:, None] & ~boxes[None] == 0).all(2)
    assert (held == inside).all(), "a predicate holds where its box has the outcome"


def test_a_broken_box_is_told_with_the_first_evidence_that_breaks_it():
    space = SPACES["numbers"]
    lattice = Lattice(space, None)
    boxes = lattice.boxes(np.eye(len(space.predicates), dtype=np.bool_)[:2])  # t.a < s.a, t.a <= s.a
    outcomes = np.array([[3, 1, 1], [2, 1, 1], [1, 1, 1], [0, 1, 1]], np.uint8)
    assert lattice.broken(boxes, outcomes).tolist() == [2, 1]
    assert lattice.broken(boxes, outcomes[:1]).tolist() == [-1, -1]


def test_a_search_that_is_not_gone_on_with_has_no_answer():
    space = SPACES[sorted(SPACES)[0]]
    outcomes = np.ones((2, len(space.comparisons)), np.uint8)
    assert Lattice(space, None).returned(outcomes[:1], outcomes[1:], lambda: False) is None
