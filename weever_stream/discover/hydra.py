"""The phases of a discovery: sample pairs, invert their evidence, settle the candidates, until nothing changes (Hydra).

A table whose pairs can all be looked at in about a second is scanned whole, and one inversion gives its exact rules.
A larger one is sampled first; then candidates and evidence improve each other, round by round. The result is the same
set of minimal rules as comparing all pairs, unless a budget of time ends the work: then `Outcome` says what is missing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Protocol, TypeAlias

import numpy as np

from weever_stream.discover.completion import Completion
from weever_stream.discover.evidence import Evidence
from weever_stream.discover.inversion import Inversion
from weever_stream.discover.logic import without_implied
from weever_stream.discover.sampling import sample_focused, sample_random

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weever_stream.discover.predicates import Space
    from weever_stream.index.arrays import Ints

__all__ = ["LISTED", "SCANNED", "Budget", "Completing", "Outcome", "Progress", "complete", "find_rules", "scan"]

Progress: TypeAlias = Callable[[str, int, int], None]
"""Told the phase, how much of it is done, and how much there is."""
SCANNED = 60_000_000
"""Pairs that are simply all looked at."""
LISTED = 400_000_000
"""Pairs at most that one set may take to settle."""
_STEP = 1 << 23
_MARKS = 40_000_000
"""Rules times predicates that are held at most: a table with more minimal rules gets those of fewer predicates."""
_SHALLOWER = (6, 5, 4, 3, 2, 1)
"""Predicates of a rule at most, where a search for more takes too long."""


class Budget:
    """How long the work may take. A part of it can be given to one phase."""

    def __init__(self, seconds: float | None, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        self._end = None if seconds is None else clock() + seconds

    def go_on(self) -> bool:
        """Whether there is time left."""
        return self._end is None or self._clock() < self._end

    def share(self, part: float) -> Budget:
        """A budget of a part of what is left."""
        left = None if self._end is None else max(0.0, self._end - self._clock()) * part
        return Budget(left, self._clock)


@dataclass(frozen=True)
class Outcome:
    """The rules found, a row of predicates each, and how sure they are."""

    rules: NDArray[np.bool_]
    evidence: Evidence
    weighed: tuple[NDArray[np.uint8], Ints]
    """Outcomes with their numbers of pairs: of all pairs, or of the random ones."""
    exact: bool
    """Whether these are all minimal rules of the table, of as many predicates as were asked for."""
    most: int | None
    """The largest number of predicates looked for; None: no limit."""
    undecided: int
    """Candidates that hold on the sample and could not be checked in time. They are not among the rules."""
    complete: bool
    """Whether the evidence is that of every pair."""
    rounds: int = 1
    limited: bool = False
    """Whether `most` was lowered for want of time or room."""


def find_rules(
    space: Space,
    *,
    most: int | None = None,
    sample: int | None = None,
    seed: int = 0,
    budget: Budget | None = None,
    tell: Progress = lambda phase, done, total: None,
    scanned: int = SCANNED,
    listed: int = LISTED,
) -> Outcome:
    """The minimal rules of a table. `sample` is the number of random pairs to begin with."""
    budget = budget or Budget(None)
    evidence = Evidence(space)
    nothing = np.zeros((0, len(space.predicates)), np.bool_)
    if space.rows < 2 or not space.predicates:
        return Outcome(nothing, evidence, evidence.outcomes(), True, most, 0, complete=True)
    if space.rows * (space.rows - 1) // 2 <= scanned:
        complete = scan(space, evidence, budget, tell)
        if complete:
            rules, reached, done = _inverted(space, evidence, most, budget, tell)
            rules = without_implied(space, rules)
            exact = done and reached == most
            weighed = evidence.outcomes()
            return Outcome(rules, evidence, weighed, exact, reached, 0, complete=True, limited=reached != most)
    return _hydra(space, evidence, most, sample, seed, budget, tell, listed)


def scan(space: Space, evidence: Evidence, budget: Budget, tell: Progress) -> bool:
    """Looks at every pair; false if time ended before."""
    rows = space.rows
    # Rows that are alike lie together, which makes the outcomes of a block alike.
    codes = np.ascontiguousarray(space.codes[:, np.lexsort(space.codes)])
    ends = np.full(rows, rows, np.int64)
    first = 0
    while first < rows:
        last = min(rows, first + max(1, _STEP // max(1, rows - first)))
        evidence.add_groups(codes, ends, first, last)
        first = last
        tell("comparing all pairs", first, rows)
        if first < rows and not budget.go_on():
            return False
    return True


def _hydra(
    space: Space,
    evidence: Evidence,
    most: int | None,
    sample: int | None,
    seed: int,
    budget: Budget,
    tell: Progress,
    listed: int,
) -> Outcome:
    chance = np.random.default_rng(seed)
    tell("sampling", 0, 0)
    pairs = sample or 1 << 19
    sample_random(evidence, space.rows, pairs, chance)
    sampled = evidence.outcomes()
    focus = budget.share(0.2)
    sample_focused(space, evidence, chance, focus.go_on)
    completion = Completion(space, evidence, sampled, listed, chance, budget.go_on)
    return complete(space, evidence, completion, sampled, most, budget, tell)


class Completing(Protocol):
    """What checks candidates against all pairs of a table."""

    def open(self, rules: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """The rules that are not decided yet."""

    def settle(self, rules: NDArray[np.bool_]) -> None:
        """Takes in evidence that decides rules, at least one of them if there is time."""


def complete(
    space: Space,
    evidence: Evidence,
    completion: Completing,
    sampled: tuple[NDArray[np.uint8], Ints],
    most: int | None,
    budget: Budget,
    tell: Progress,
) -> Outcome:
    """Inverts evidence and checks the candidates until nothing changes."""
    rounds, reached = 0, most
    while True:
        rounds += 1
        rules, reached, done = _inverted(space, evidence, reached, budget, tell)
        # A candidate and its exchange stand or fall together, and trivial ones need no look at the data.
        rules = without_implied(space, rules)
        waiting = completion.open(rules)
        if not len(waiting) or not budget.go_on():
            break
        tell(f"checking {len(waiting):,} candidates, round {rounds}", 0, 0)
        completion.settle(waiting)
    if len(waiting):
        known = {row.tobytes() for row in waiting}
        rules = rules[[row.tobytes() not in known for row in rules]]
    exact = done and reached == most and not len(waiting)
    limited = reached != most
    return Outcome(rules, evidence, sampled, exact, reached, len(waiting), False, rounds, limited)


def _inverted(
    space: Space, evidence: Evidence, most: int | None, budget: Budget, tell: Progress
) -> tuple[NDArray[np.bool_], int | None, bool]:
    """The minimal rules of the evidence, of fewer predicates where there is no time for all; and whether it ended."""
    outcomes, _ = evidence.outcomes()
    search = Inversion(space, outcomes)
    deepest = len(space.comparisons) if most is None else most
    tries = [most, *(depth for depth in _SHALLOWER if depth < deepest)]
    room = max(10_000, _MARKS // len(space.predicates))
    partial: list[NDArray[np.bool_]] = []
    for at, depth in enumerate(tries):
        part = budget.share(0.3 if at + 1 < len(tries) else 1.0)
        search.start(depth)
        found, rules = [np.zeros((0, len(space.predicates)), np.bool_)], 0
        while not search.done and part.go_on() and rules <= room:
            tell(f"inverting evidence, {rules:,} candidates", 0, 0)
            found.append(search.step())
            rules += len(found[-1])
        if search.done:
            return np.concatenate([*partial, *found]), depth, True
        partial += found
    return np.concatenate(partial), tries[-1], False
