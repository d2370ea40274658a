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
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from weever_stream.check.count import count_rule
from weever_stream.discover.budget import Budget
from weever_stream.discover.completion import Completion
from weever_stream.discover.evidence import Evidence
from weever_stream.discover.inversion import Inversion
from weever_stream.discover.logic import without_implied_in_time
from weever_stream.discover.ranking import rank
from weever_stream.discover.sampling import sample_focused, sample_random

if TYPE_CHECKING:
    from collections.abc import Sequence

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
_AT_FIRST, _BY_STAGE, _OWN, _OWN_MEMORY = 0.3, 0.5, 0.4, 0.4
"""Shares of the time for a search of all rules, for each stage where that is not enough, and for columns alone; and the
share of the memory for those."""
_MANY_CROSSED = 3
"""Predicates for each one of a column alone, above which rules of columns alone are looked for before all others."""
_FOR_CANDIDATES, _GRACE = 0.15, 5.0
"""The share of the time that is kept to count candidates, and the seconds that there are at most once it has ended."""
_FEW = 1000
"""Candidates of a search that was not finished, and evidences for which there always is room."""
_RANKED, _MOST_RANKED = 250, 5000
"""Candidates that are ranked in a second that is left, and at most."""


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
    searching = budget.share(1 - _FOR_CANDIDATES)
    found = _hydra(space, evidence_within(space, budget), most, sample, seed, searching, tell, listed)
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
    """Counts the candidates that are left one by one, for as long as there is time, and adds those that hold.

    The best come first, as far as there is time to rank them. Where the search has taken all of the time, or somebody
    has stopped it, there is a little more for this: without it nothing would come of the search.
    """
    assert found.waiting is not None
    budget = budget.at_least(min(_GRACE, _FOR_CANDIDATES * budget.given))
    first = min(len(found.waiting), int(min(_RANKED * budget.left(), _MOST_RANKED)))
    order = [*rank(space, found.waiting[:first], *found.weighed)[0], *range(first, len(found.waiting))]
    waiting, counted = found.waiting[order], 0
    holds = np.zeros(len(waiting), np.bool_)
    for rule in waiting:
        tell("counting candidates", counted, len(waiting))
        if not budget.go_on():
            break
        holds[counted] = not count_rule(space.rule(np.flatnonzero(rule)), space.exact).violations
        counted += 1
    rules = np.concatenate([found.rules, waiting[holds]])
    rules = rules[np.argsort(rules.sum(1), kind="stable")]
    return replace(found, rules=rules, undecided=len(waiting) - counted, waiting=waiting[counted:])


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
    alone = partial(_of_columns_alone, space, most=most, sample=sample, seed=seed, tell=tell, listed=listed)
    if budget.left() < float("inf") and _MANY_CROSSED * np.count_nonzero(_own_columns(space)) < len(space.predicates):
        # Most comparisons are of different columns: their evidence alone may take all the time there is.
        before = alone(budget.share(_OWN, _OWN_MEMORY))
        alone = partial(lambda rules, _: rules, before)
    chance = np.random.default_rng(seed)
    tell("sampling", 0, 0)
    # Most of the room is kept for what shows up later: every round takes the time to unpack and invert all of it.
    room = min(evidence.room // 2, max(_FEW, evidence.room // 8))
    drawing = budget.share(0.1)
    step = min(1 << 19, max(1 << 10, _COMPARED // 8 // max(1, len(space.comparisons))))
    wanted = sample or 1 << 19
    while wanted > 0 and evidence.distinct < room and drawing.go_on():
        sample_random(evidence, space.rows, min(wanted, step), chance)
        wanted -= step
    sampled = evidence.outcomes()
    focus = budget.share(0.2)
    sample_focused(space, evidence, chance, lambda: focus.go_on() and evidence.distinct < room, budget.memory // 8)
    completion = Completion(space, evidence, sampled, listed, chance, budget.go_on, budget.left)
    found = complete(space, evidence, completion, sampled, most, budget, tell, alone)
    return replace(found, settled=tuple(completion.taken))


def _of_columns_alone(space: Space, budget: Budget, **options: Any) -> NDArray[np.bool_]:
    """Rules that compare no different columns, found without the comparisons of those. They are minimal with them too.

    From what is known of each column alone, nothing follows about two of them: no rule on different columns implies one
    on columns alone. Their evidence is far less, and so is the time to invert it.
    """
    own = _own_columns(space)
    kept = [at for at, one in enumerate(space.comparisons) if one.left.name == one.right.name]
    part = replace(space, comparisons=tuple(space.comparisons[at] for at in kept), programs=space.programs[kept])
    found = find_rules(part, budget=budget, **options).rules
    rules = np.zeros((len(found), len(own)), np.bool_)
    rules[:, own] = found
    return rules


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
    alone: Callable[[Budget], NDArray[np.bool_]] | None = None,
) -> Outcome:
    """Inverts evidence and checks the candidates until nothing changes.

    Where there is no time or room for all candidates at once, they come in stages: first those of one predicate, then
    of two, and so on. Before that, rules are looked for without comparisons of different columns, which are many and
    say least: by `alone` if it is given. What has been settled by the end are all rules of so many predicates, and some
    of more.
    """
    rounds = _Rounds(space, evidence, completion, most, tell)
    whole = rounds.at_once(budget)
    found, ended = [whole], whole
    if not whole.finished and alone is not None and not _own_columns(space).all():
        whole = whole._replace(rules=_together(space, [whole.rules, alone(budget.share(_OWN, _OWN_MEMORY))]))
        found = [whole]
    if not whole.searched and budget.go_on() and not evidence.full:
        own = _own_columns(space)
        if alone is None and not own.all():
            found.append(rounds.by_stage(budget.share(_OWN), own))
        ended = rounds.by_stage(budget)
        found.append(ended)
    best = _together(space, [one.rules for one in found])
    waiting = _together(space, [one.waiting for one in found], but=best)
    limited = ended.reached != most
    exact = ended.finished and not limited
    if ended.finished:
        best, waiting = ended.rules, ended.waiting
    return Outcome(
        best,
        evidence,
        sampled,
        exact,
        ended.reached,
        len(waiting),
        False,
        rounds.number,
        limited,
        evidence.full,
        waiting,
    )


def _together(
    space: Space, parts: Sequence[NDArray[np.bool_]], but: NDArray[np.bool_] | None = None
) -> NDArray[np.bool_]:
    """The rules of several searches, each once, but for some; shortest first."""
    rows = {row.tobytes(): row for part in parts for row in part}
    for row in parts[0][:0] if but is None else but:
        rows.pop(row.tobytes(), None)
    found = np.array([*rows.values()], np.bool_).reshape(len(rows), len(space.predicates))
    return found[np.argsort(found.sum(1), kind="stable")]


class _Settled(NamedTuple):
    """What a search came to."""

    rules: NDArray[np.bool_]
    """Rules that hold on the whole table."""
    waiting: NDArray[np.bool_]
    """Candidates that were not checked."""
    reached: int | None
    """Rules of so many predicates are all among the rules; None for all there are."""
    finished: bool
    """Whether these are all that were asked for."""
    searched: bool
    """Whether the last search came to its end."""


class _Rounds:
    """Searches for candidates and checks of them, by turns."""

    def __init__(
        self, space: Space, evidence: Evidence, completion: Completing, most: int | None, tell: Progress
    ) -> None:
        self._space, self._evidence, self._completion = space, evidence, completion
        self._most, self._tell = most, tell
        self._inverted: tuple[int, Inversion] | None = None
        self.number = 0

    def at_once(self, budget: Budget) -> _Settled:
        """All rules. If there is no time to search for all of them, a few of the candidates wait."""
        nothing = np.zeros((0, len(self._space.predicates)), np.bool_)
        while True:
            found, rules = self._search(self._most, budget, _AT_FIRST)
            waiting = self._completion.open(rules)
            reached = (self._most if found.whole else found.most) if found.done else 0
            if not found.done:
                return _Settled(nothing, waiting[:_FEW], 0, finished=False, searched=False)
            if not len(waiting):
                return _Settled(rules, waiting, reached, finished=True, searched=True)
            if not self._checked(waiting, budget):
                return _Settled(_but(rules, waiting), waiting, reached, finished=False, searched=True)

    def by_stage(self, budget: Budget, among: NDArray[np.bool_] | None = None) -> _Settled:
        """Rules of one predicate, then of two, and so on, for as long as there is time."""
        best, reached = np.zeros((0, len(self._space.predicates)), np.bool_), 0
        while True:
            found, rules = self._search(reached + 1, budget, _BY_STAGE, among)
            waiting = self._completion.open(rules)
            if found.done and not len(waiting):
                best, reached = rules, found.most
                if found.whole:
                    return _Settled(best, waiting, self._most, finished=True, searched=True)
            elif not found.done or not self._checked(waiting, budget):
                rules = _together(self._space, [best, _but(rules, waiting)])
                return _Settled(rules, waiting, reached, finished=False, searched=found.done)

    def _search(
        self, depth: int | None, budget: Budget, share: float, among: NDArray[np.bool_] | None = None
    ) -> tuple[_Inverted, NDArray[np.bool_]]:
        """The rules of the evidence there is, of up to `depth` predicates."""
        self.number += 1
        part = budget.share(share)
        if self._inverted is None or self._inverted[0] != self._evidence.distinct:
            self._inverted = None  # the memory of the old one is free for the new one
            self._inverted = self._evidence.distinct, _inversion(self._space, self._evidence, part)
        found = _search(self._space, self._inverted[1], depth, self._most, part, self._tell, among)
        # A candidate and its exchange stand or fall together, and trivial ones need no look at the data.
        rules, left = without_implied_in_time(self._space, found.rules, budget.go_on)
        return found._replace(done=found.done and not left), rules

    def _checked(self, waiting: NDArray[np.bool_], budget: Budget) -> bool:
        """Checks candidates; false if there is no time or room, or what is left takes more time than there is."""
        if not budget.go_on() or self._evidence.full:
            return False
        self._tell(f"checking {len(waiting):,} candidates, round {self.number}", 0, 0)
        known = self._evidence.distinct
        self._completion.settle(waiting)
        return self._evidence.distinct > known or len(self._completion.open(waiting)) < len(waiting)


def _but(rules: NDArray[np.bool_], others: NDArray[np.bool_]) -> NDArray[np.bool_]:
    names = {row.tobytes() for row in others}
    return rules[[row.tobytes() not in names for row in rules]]


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
    space: Space,
    search: Inversion,
    depth: int | None,
    most: int | None,
    budget: Budget,
    tell: Progress,
    among: NDArray[np.bool_] | None = None,
) -> _Inverted:
    """The minimal rules of up to `depth` predicates, of `most` that are asked for: as many as time and room allow."""
    search.start(depth, among)
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
    # What such a search finds holds too, but shorter rules are worth more, and so are those of columns alone.
    parts, own = [first.rules[:some]], _own_columns(space)
    if not own.all():
        parts.append(_by_stage(space, search, most, budget.share(_OWN), tell, some, own)[0])
    rules, reached, whole = _by_stage(space, search, most, budget, tell, some)
    return (rules, most) if whole else (_together(space, [rules, *parts]), reached)


def _by_stage(
    space: Space,
    search: Inversion,
    most: int | None,
    budget: Budget,
    tell: Progress,
    some: int,
    among: NDArray[np.bool_] | None = None,
) -> tuple[NDArray[np.bool_], int, bool]:
    """Rules of one predicate, then of two, and so on; of how many they are all, and whether there are no others.

    Of a stage that there is no time for, the rules that were found, up to `some`.
    """
    best, reached = np.zeros((0, len(space.predicates)), np.bool_), 0
    while budget.go_on():
        found = _search(space, search, reached + 1, most, budget.share(_BY_STAGE), tell, among)
        if not found.done:
            return _together(space, [best, found.rules[:some]]), reached, False
        best, reached = found.rules, found.most
        if found.whole:
            return best, reached, True
    return best, reached, False


def _own_columns(space: Space) -> NDArray[np.bool_]:
    """Marks the predicates that compare a column with itself."""
    own = np.array([one.left.name == one.right.name for one in space.comparisons], np.bool_)
    return own[space.comparison_of]
