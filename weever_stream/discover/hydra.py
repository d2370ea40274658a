"""The phases of a discovery: sample pairs, invert their evidence, settle the candidates, until nothing changes (Hydra).

A table whose pairs can all be looked at in about a second is scanned whole, and one inversion gives its exact rules.
A larger one is sampled first; then candidates and evidence improve each other, round by round. The result is the same
set of minimal rules as comparing all pairs, unless a budget of time or memory ends the work: then candidates that are
left are counted one by one, shortest first, for as long as there is time, and `Outcome` says what is missing. A rule of
the inversion that holds on the whole table is minimal there too, however little evidence there was.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

import numpy as np

from weever_stream.check.count import count_rule
from weever_stream.discover.budget import Budget
from weever_stream.discover.completion import Completion
from weever_stream.discover.evidence import Evidence
from weever_stream.discover.inversion import Inversion
from weever_stream.discover.logic import without_implied_in_time
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
_STEP, _COMPARED = 1 << 23, 1 << 27
"""Pairs, and pairs times comparisons, between two looks at the clock."""
_AT_FIRST, _BY_STAGE = 0.3, 0.5
"""Shares of the time for a search of all rules, and for each stage where that is not enough."""


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
    full: bool = False
    """Whether there was no memory for all evidence."""
    waiting: NDArray[np.bool_] | None = None
    """The candidates that are undecided, shortest first."""
    settled: tuple[tuple[int, ...], ...] = ()
    """Sets of predicates that together decide the rules: every pair that satisfies one of them was looked at."""


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
    nothing = np.zeros((0, len(space.predicates)), np.bool_)
    if space.rows < 2 or not space.predicates:
        evidence = Evidence(space)
        return Outcome(nothing, evidence, evidence.outcomes(), True, most, 0, complete=True)
    evidence = evidence_within(space, budget)
    if space.rows * (space.rows - 1) // 2 <= scanned and scan(space, evidence, budget.share(0.3), tell):
        rules, reached = _of_all_pairs(space, evidence, most, budget, tell)
        rules, left = without_implied_in_time(space, rules, budget.go_on)
        limited = reached != most or bool(left)
        return Outcome(rules, evidence, evidence.outcomes(), not limited, reached, 0, complete=True, limited=limited)
    found = _hydra(space, evidence_within(space, budget), most, sample, seed, budget, tell, listed)
    return found if not found.undecided else _with_those_that_hold(space, found, budget, tell)


def evidence_within(space: Space, budget: Budget) -> Evidence:
    """No evidence yet, and as much room as there is memory and time for."""
    return Evidence(space, budget.evidences(len(space.comparisons), len(space.predicates)))


def scan(space: Space, evidence: Evidence, budget: Budget, tell: Progress) -> bool:
    """Looks at every pair; false if time or room ended before."""
    rows = space.rows
    step = min(_STEP, _COMPARED // max(1, len(space.comparisons)))
    # Rows that are alike lie together, which makes the outcomes of a block alike.
    order = np.lexsort(space.codes)
    codes = np.ascontiguousarray(space.codes[:, order])
    ends = np.full(rows, rows, np.int64)
    first = 0
    while first < rows:
        last = min(rows, first + max(1, step // max(1, rows - first)))
        evidence.add_groups(codes, order, ends, first, last)
        first = last
        tell("comparing all pairs", first, rows)
        if evidence.full or (first < rows and not budget.go_on()):
            return False
    return True


def _with_those_that_hold(space: Space, found: Outcome, budget: Budget, tell: Progress) -> Outcome:
    """Counts the candidates that are left one by one, for as long as there is time, and adds those that hold."""
    assert found.waiting is not None
    holds: list[NDArray[np.bool_]] = []
    for at, rule in enumerate(found.waiting):
        tell("counting candidates", at, len(found.waiting))
        if not budget.go_on():
            left = found.waiting[at:]
            break
        if not count_rule(space.rule(np.flatnonzero(rule)), space.exact).violations:
            holds.append(rule)
    else:
        left = found.waiting[:0]
    rules = np.concatenate([found.rules, *(rule[None] for rule in holds)])
    rules = rules[np.argsort(rules.sum(1), kind="stable")]
    return replace(found, rules=rules, undecided=len(left), waiting=left)


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
    rounds = budget.share(0.85)
    # Half of the room is kept for what shows up later.
    room = evidence.room // 2
    drawing = budget.share(0.1)
    step = min(1 << 19, max(1 << 10, _COMPARED // 8 // max(1, len(space.comparisons))))
    wanted = sample or 1 << 19
    while wanted > 0 and evidence.distinct < room and drawing.go_on():
        sample_random(evidence, space.rows, min(wanted, step), chance)
        wanted -= step
    sampled = evidence.outcomes()
    focus = budget.share(0.2)
    sample_focused(space, evidence, chance, lambda: focus.go_on() and evidence.distinct < room, budget.memory // 8)
    completion = Completion(space, evidence, sampled, listed, chance, rounds.go_on, rounds.left)
    found = complete(space, evidence, completion, sampled, most, rounds, tell)
    return replace(found, settled=tuple(completion.taken))


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
    """Inverts evidence and checks the candidates until nothing changes.

    Where there is no time or room for all candidates, first those of one predicate, then of two, and so on: what has
    been settled by the end are all rules of so many predicates, and some of one more.
    """
    best = rules = waiting = np.zeros((0, len(space.predicates)), np.bool_)
    rounds, depth, reached = 0, most, most
    staged = finished = False
    while not finished:
        rounds += 1
        part = budget.share(_BY_STAGE if staged else _AT_FIRST)
        found = _search(space, _inversion(space, evidence, part), depth, most, part, tell)
        # A candidate and its exchange stand or fall together, and trivial ones need no look at the data.
        rules, left = without_implied_in_time(space, found.rules, budget.go_on)
        waiting = completion.open(rules)
        done = found.done and not left
        if done and not len(waiting):
            best, reached = rules, most if found.whole else found.most
            finished = found.whole or not staged
            depth = reached + 1 if staged and reached is not None else depth
        elif not budget.go_on() or evidence.full or (staged and not done):
            break
        elif not done:
            staged, depth, reached = True, 1, 0
        else:
            tell(f"checking {len(waiting):,} candidates, round {rounds}", 0, 0)
            known = evidence.distinct
            completion.settle(waiting)
            if evidence.distinct == known and len(completion.open(waiting)) == len(waiting):
                break  # what is left takes more time than there is
    if not finished:
        names = {row.tobytes() for row in (*waiting, *best)}
        best = np.concatenate([best, rules[[row.tobytes() not in names for row in rules]]])
        if not staged and not found.done:
            reached = 0
    limited = reached != most
    exact = finished and not limited
    return Outcome(
        best, evidence, sampled, exact, reached, len(waiting), False, rounds, limited, evidence.full, waiting
    )


class _Inverted(NamedTuple):
    """Rules of the evidence, and how far they are all."""

    rules: NDArray[np.bool_]
    done: bool
    """Whether these are all of up to `most` predicates."""
    most: int
    whole: bool
    """Whether there are none of more predicates, or none that are asked for."""


def _inversion(space: Space, evidence: Evidence, budget: Budget) -> Inversion:
    outcomes, _ = evidence.outcomes()
    return Inversion(space, outcomes, budget.depth(len(outcomes)))


def _search(
    space: Space, search: Inversion, depth: int | None, most: int | None, budget: Budget, tell: Progress
) -> _Inverted:
    """The minimal rules of up to `depth` predicates, of `most` that are asked for: as many as time and room allow."""
    search.start(depth)
    room = budget.rules(len(space.predicates))
    found, rules = [np.zeros((0, len(space.predicates)), np.bool_)], 0
    while not search.done and budget.go_on() and rules <= room:
        tell(f"inverting evidence, {rules:,} candidates", 0, 0)
        found.append(search.step())
        rules += len(found[-1])
    asked = len(space.comparisons) if most is None else min(most, len(space.comparisons))
    # A search that was never cut has found all there are, however few predicates it asked for.
    return _Inverted(np.concatenate(found), search.done, search.most, not search.cut or search.most == asked)


def _of_all_pairs(
    space: Space, evidence: Evidence, most: int | None, budget: Budget, tell: Progress
) -> tuple[NDArray[np.bool_], int | None]:
    """The minimal rules where all pairs were seen, and of how many predicates they are all."""
    search = _inversion(space, evidence, budget)
    some = budget.rules(len(space.predicates)) // 4
    first = _search(space, search, most, most, budget.share(_AT_FIRST), tell)
    if first.done:
        return first.rules, most if first.whole else first.most
    best, reached = first.rules[:some], 0
    while budget.go_on():
        found = _search(space, search, reached + 1, most, budget.share(_BY_STAGE), tell)
        if not found.done:
            return np.concatenate([best, found.rules[:some]]), reached
        # Those of a corner of a deeper search hold too, but the shorter ones are worth more.
        best, reached = np.concatenate([found.rules, first.rules[:some]]), found.most
        if found.whole:
            return best, most
    return best, reached
