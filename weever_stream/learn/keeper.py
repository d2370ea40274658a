"""The heart of learning: rows as labels, the evidence that their pairs have, and the rules that follow from it.

After every `change` the rules are exactly the minimal ones of the rows that live: those that comparing all pairs would
give. Three things hold between changes. Every evidence in the ledger has a pair of living rows. The boxes are the rules
of the ledger's evidence. And no pair can break one of them without satisfying a watched set, where it is listed.

Rows that come can only add evidence in the watched sets, which refines the rules it breaks; what is refined is watched
too. Rows that go can take evidence away; rules come back, and where the sets do not watch them they are checked against
the whole table, as discovery does, and sets are added.

Cost of a change: its rows times the watched sets and their pairs, and what becomes of the rules; a check against the
whole table is linear in it. When the rows have doubled or halved the sets are chosen anew, which evens out.
"""

from __future__ import annotations

from dataclasses import replace
from time import monotonic
from typing import TYPE_CHECKING

import numpy as np

from weever_stream.discover.completion import Completion
from weever_stream.discover.evidence import Evidence
from weever_stream.discover.hydra import LISTED, SCANNED, find_rules
from weever_stream.discover.logic import without_implied
from weever_stream.discover.sampling import sample_random
from weever_stream.discover.settled import Settled
from weever_stream.errors import DataError
from weever_stream.index.tree import ALIVE
from weever_stream.learn.cover import EVERYTHING, evidence_of, marks_of, needed, sampled_pairs, settle
from weever_stream.learn.labels import NULL
from weever_stream.learn.lattice import ANYTHING, Lattice
from weever_stream.learn.ledger import WITNESSES, Ledger, News
from weever_stream.learn.watch import Everything, Listing, Watch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from weever_stream.discover.hydra import Progress
    from weever_stream.discover.predicates import Space
    from weever_stream.index.arrays import Bytes, Ints, Rows
    from weever_stream.learn.labels import Labelled

__all__ = ["Keeper"]

SMALL = 1000
"""Rows up to which all pairs of a change are looked at."""
_FEWEST = 2
"""Rows of which all pairs are looked at, whatever is asked for: with less than a pair there is no evidence to go by."""
_ROOM = 1 << 10
_MANY = 4
"""Evidences are inverted anew where more than one in so many has come or gone."""
_MORE_SETS = 8
_LEAP = 4
"""A table that is so many times as large as the one before a change is looked at anew."""
_WITNESSED = 1 << 17
"""Random pairs, of which those with an evidence that is in no set are kept as its witnesses."""


class Keeper:
    """Rows by number, their evidence and rules. Numbers change only in `tidy`."""

    def __init__(self, labelled: Labelled, most: int | None, seed: int = 0, small: int = SMALL) -> None:
        self._labelled, self.small = labelled, max(small, _FEWEST)
        self._chance = np.random.default_rng(seed)
        width = len(labelled.columns)
        self.space = replace(labelled.space(np.empty((0, width), np.int32)), programs=labelled.programs)
        """The comparisons and predicates, of no rows; its programs are for rows of labels."""
        self.laws = replace(self.space, comparisons=labelled.said)
        """The same of the columns themselves: what follows from what."""
        self.lattice = Lattice(self.space, most)
        self.codes: NDArray[np.int32] = np.empty((_ROOM, width), np.int32)
        self.dead: Bytes = np.zeros(_ROOM, np.uint8)
        self.size = self.buried = 0
        """Rows that have come, and those of them that have gone."""
        self.ledger = Ledger(self.space, self.lattice.bits(np.arange(4, dtype=np.uint8)))
        self.boxes = self.lattice.inverted(np.zeros((0, len(self.space.comparisons)), np.uint8))
        self._told = self.boxes[:0], self.boxes[:0]
        """Rules, and what was told of them."""
        self.sets: list[tuple[int, ...]] = []
        self._listings: list[Listing] = []
        self._chosen_for, self._chosen_sets = 0, 0
        self._nullable = np.zeros(width, np.bool_)
        self._cover(*self._current(), [EVERYTHING])

    @property
    def alive(self) -> Rows:
        """The numbers of the rows that live."""
        return np.flatnonzero(self.dead[: self.size] == 0).astype(np.int32)

    def __len__(self) -> int:
        return self.size - self.buried

    def told(self) -> NDArray[np.uint8]:
        """The rules without those that others imply, one way round, as boxes; of fewer than two rows none is told."""
        if len(self) < 2:
            return self.boxes[:0]
        if self._told[0] is not self.boxes:
            some = self.boxes[(self.boxes != ANYTHING).any(1)]
            told = self.lattice.boxes(without_implied(self.laws, self.lattice.rules(some)))
            self._told = self.boxes, told
        return self._told[1]

    # Changes

    def begin(self, codes: NDArray[np.int32], tell: Progress) -> None:
        """The first rows, and the rules that they obey."""
        rows = self._append(codes)
        if len(rows) <= self.small:
            self._come(rows, News())
            self.boxes = self.lattice.inverted(self.ledger.outcomes())
            return
        self._discover(None, tell)

    def _discover(self, news: News | None, tell: Progress = lambda phase, done, total: None) -> None:
        """The rules of the rows that live, found anew, and what to watch for them."""
        space, alive = self._current()
        most = None if self.lattice.most >= len(space.comparisons) else self.lattice.most
        outcome = find_rules(space, most=most, tell=tell, scanned=SCANNED)
        if not outcome.exact:
            raise DataError(
                f"there are more than {outcome.evidence.distinct:,} kinds of pairs of rows: too many to keep",
                hint="learn about fewer columns, or rules of fewer predicates",
            )
        tell("inverting evidence", 0, 0)
        known = {*self.ledger.counts, *self.ledger.loose}
        self.ledger.counts, self.ledger.loose = {}, {}
        self.ledger.watch(self._boxes_of(()))
        met = News()
        self.ledger.see(outcome.evidence.seen(), alive, met)
        self._look_at_one_pair(met)
        self.boxes = self.lattice.inverted(self.ledger.outcomes())
        tell("choosing what to watch", 0, 0)
        self._cover(space, alive, outcome.settled)
        if news is not None:
            for name, pair in met.came.items():
                if name not in known:
                    news.come(name, pair)

    def change(self, gone: Rows, codes: NDArray[np.int32]) -> News:
        """Some rows go, others come. Tells the evidences that went and came."""
        news = News()
        if len(gone):
            self.dead[gone] = 1
            self.buried += len(gone)
            self._go(gone, news)
        rows = self._append(codes)
        if len(self) > max(_LEAP * self._chosen_for, 2 * self.small):
            # The sets were chosen for far fewer rows: so many would have too many pairs in them.
            self._discover(news)
            return news
        self._come(rows, news)
        # With a column's first null sets are safe for fewer rules than they were: none is to be trusted.
        trusted = self.boxes[:0] if self._first_null(codes) else self.boxes
        self._follow(news)
        if news.went or not len(trusted):
            self._check_against_all({box.tobytes() for box in trusted}, news)
        return news

    def _append(self, codes: NDArray[np.int32]) -> Rows:
        need = self.size + len(codes)
        if need > len(self.codes):
            more = max(need, 2 * len(self.codes)) - self.size
            self.codes = np.concatenate([self.codes[: self.size], np.empty((more, codes.shape[1]), np.int32)])
            self.dead = np.concatenate([self.dead[: self.size], np.zeros(more, np.uint8)])
        if self._labelled.renew(self.codes[: self.size]):
            self._build()
        self.codes[self.size : need] = codes
        rows = np.arange(self.size, need, dtype=np.int32)
        self.size = need
        return rows

    @property
    def _mask(self) -> Bytes:
        return self.dead if self.buried else ALIVE

    def _go(self, rows: Rows, news: News) -> None:
        for number, listing in enumerate(self._listings):
            self._tally(number, listing, rows, -1, news)
        self.ledger.bury(self.dead, news)

    def _come(self, rows: Rows, news: News) -> None:
        for number, listing in enumerate(self._listings):
            self._tally(number, listing, rows, 1, news)
            listing.add(self.codes, rows, self.dead)

    def _tally(self, number: int, listing: Listing, rows: Rows, sign: int, news: News) -> None:
        if len(rows):
            evidence, codes = Evidence(self.space), self.codes.T
            for left, right in listing.pairs(self.codes, rows, self._mask):
                evidence.add_pairs(left, right, codes)
            self.ledger.tally(evidence.seen(), number, sign, news)

    def _follow(self, news: News) -> None:
        """The rules after evidences have come and gone."""
        came, went, boxes = news.came, news.went, self.boxes
        anew = _MANY * (len(came) + len(went)) > max(64, len(self.ledger))
        if came and not anew:
            boxes = self.lattice.refined(boxes, self.ledger.outcomes(came))
        if went and not anew:
            until = monotonic() + self.lattice.patience
            back = self.lattice.returned(
                self.ledger.outcomes(went), self.ledger.outcomes(), lambda: monotonic() < until
            )
            anew = back is None
            if back is not None:
                boxes = np.concatenate([self.lattice.without_less_general(boxes, back), back])
        self.boxes = self.lattice.inverted(self.ledger.outcomes()) if anew else boxes

    def _first_null(self, codes: NDArray[np.int32]) -> bool:
        """Whether a column has its first null."""
        nulls = (codes == NULL).any(0)
        first = bool((nulls & ~self._nullable).any())
        self._nullable |= nulls
        return first

    @property
    def chosen(self) -> tuple[int, int]:
        """For how many rows the sets were chosen, and how many sets."""
        return self._chosen_for, self._chosen_sets

    def restore(
        self,
        codes: NDArray[np.int32],
        sets: Sequence[tuple[int, ...]],
        chosen: tuple[int, int],
        counts: dict[bytes, int],
        loose: dict[bytes, list[tuple[int, int]]],
        boxes: NDArray[np.uint8],
    ) -> None:
        """Takes in what was known before, of rows that are numbered from 0 on."""
        self._append(codes)
        self.sets = list(sets)
        self._chosen_for, self._chosen_sets = chosen
        self._nullable = (codes == NULL).any(0)
        self.ledger.watch(self._boxes_of(self.sets))
        self.ledger.counts, self.ledger.loose = counts, loose
        # Where nothing is compared boxes take no room, however many there are.
        self.boxes = boxes if boxes.shape[1] else self.lattice.inverted(self.ledger.outcomes())
        self._build()

    # What no set watches

    def _check_against_all(self, trusted: set[bytes], news: News) -> None:
        """Looks for pairs that break rules which no set watches, until there are none; then watches those rules too."""
        self._look_at_one_pair(news)
        told = self.told()
        suspects = told[[box.tobytes() not in trusted for box in told]]
        suspects = suspects[self._settled().undecided(self.lattice.rules(suspects))]
        if not len(suspects):
            return
        # Not those that are only implied by a suspect: when that one is broken, they have to stand for themselves.
        trusted = (trusted | {box.tobytes() for box in told}) - {box.tobytes() for box in suspects}
        space, alive = self._current()
        # Whether these have nulls is what decides below: a null that comes after others have gone is a first one again.
        self._nullable = (self.codes[alive] == NULL).any(0)
        sample = sampled_pairs(space, self._chance)
        evidence = Evidence(space)
        evidence.add_keys(self.ledger.keys())
        completion = Completion(space, evidence, sample.outcomes(), LISTED, self._chance)
        completion.know(marks_of(space, self.sets))
        self._absorb(sample, alive, news)
        while True:
            told = self.told()
            suspects = told[[box.tobytes() not in trusted for box in told]]
            waiting = completion.open(self.lattice.rules(suspects))
            if not len(waiting):
                break
            completion.settle(waiting)
            self._absorb(evidence, alive, news)
        rules = self.lattice.rules(suspects)
        self._watch_too(space, alive, needed(space, completion.taken, rules, sample.outcomes(), self.sets))

    def _look_at_one_pair(self, news: News) -> None:
        """Without any evidence the one rule is that there are no two rows, and it cannot be looked for."""
        if len(self.ledger) or len(self) < 2:
            return
        evidence, alive = Evidence(self.space), self.alive
        evidence.add_pairs(alive[:1], alive[1:2], self.codes.T)
        self._absorb(evidence, np.arange(self.size, dtype=np.int32), news)

    def _absorb(self, evidence: Evidence, alive: Rows, news: News) -> None:
        """Takes in evidence that was met while looking, and refines the rules that it breaks."""
        met = News()
        self.ledger.see(evidence.seen(), alive, met)
        for name, pair in met.came.items():
            news.come(name, pair)
        self.boxes = self.lattice.refined(self.boxes, self.ledger.outcomes(met.came))

    def _settled(self) -> Settled:
        """What the watched sets decide, of columns that have nulls or not."""
        column = np.where(self._nullable, NULL, 0).astype(np.int32).reshape(-1, 1)
        settled = Settled(replace(self.space, codes=column))
        for marks in marks_of(self.space, self.sets):
            settled.add(marks)
        return settled

    # What is watched

    def _current(self) -> tuple[Space, Rows]:
        """The living rows as discovery sees them, and their numbers."""
        alive = self.alive
        return self._labelled.space(self.codes[alive]), alive

    def _cover(self, space: Space, alive: Rows, settled: Sequence[tuple[int, ...]]) -> None:
        """Chooses what to watch, of sets that were settled if there are any, and counts what is watched."""
        self._nullable = (self.codes[alive] == NULL).any(0)
        self._chosen_for = len(alive)
        known = self.ledger.keys()
        if len(alive) <= self.small:
            self.sets = [EVERYTHING]
        else:
            rules, sample = self.lattice.rules(self.told()), sampled_pairs(space, self._chance)
            if not settled:
                settled = settle(space, rules, sample, self._chance)
            self.sets = needed(space, settled, rules, sample.outcomes())
        self._chosen_sets = len(self.sets)
        self._recount(space, alive, known)
        self._build()

    def _recount(self, space: Space, alive: Rows, known: NDArray[np.uint64]) -> None:
        """Counts the pairs of all sets, and finds witnesses for what is in none of them."""
        before = self.ledger.loose
        self.ledger.counts, self.ledger.loose = {}, {}
        self.ledger.watch(self._boxes_of(self.sets))
        for number in range(len(self.sets)):
            self._count(space, number)
        told = zip(known, self.ledger.standing(known), strict=True)
        lost = [key.tobytes() for key, (_, _, owner) in told if owner < 0]
        self.ledger.loose = {name: before[name] for name in lost if name in before}
        if len(alive) > self.small:
            for _ in range(WITNESSES):
                evidence = Evidence(space)
                sample_random(evidence, space.rows, _WITNESSED, self._chance)
                self.ledger.see(evidence.seen(), alive)
        unknown = [name for name in lost if name not in self.ledger.loose]
        assert not unknown, "what is not watched has witnesses"

    def _count(self, space: Space, number: int) -> None:
        self.ledger.tally(evidence_of(space, self.sets[number], self._chance).seen(), number, 1, News())

    def _watch_too(self, space: Space, alive: Rows, more: Sequence[tuple[int, ...]]) -> None:
        """Further sets are watched."""
        first = len(self.sets)
        self.sets += more
        self.ledger.watch(self._boxes_of(self.sets))
        for name in self.ledger.owned(range(first, len(self.sets))):
            del self.ledger.loose[name]
        for number in range(first, len(self.sets)):
            self._count(space, number)
            self._listings.append(self._listing(number, alive))

    def _build(self) -> None:
        """The trees of all sets."""
        alive = self.alive
        self._listings = [self._listing(number, alive) for number in range(len(self.sets))]

    def _listing(self, number: int, alive: Rows) -> Listing:
        some = self.sets[number]
        listing: Listing = Watch(self.space, some) if some else Everything()
        listing.add(self.codes, alive, self.dead)
        return listing

    def _boxes_of(self, sets: Sequence[tuple[int, ...]]) -> NDArray[np.uint8]:
        return self.lattice.boxes(marks_of(self.space, sets))

    def tidy(self) -> Ints | None:
        """Forgets the dead and chooses anew what to watch, if it is time to; then the new number of each row, or -1."""
        rows = len(self)
        grown = rows > max(2 * self._chosen_for, self.small)
        shrunk = 2 * rows < self._chosen_for and self._chosen_for > self.small
        many = len(self.sets) > 2 * self._chosen_sets + _MORE_SETS
        if not (grown or shrunk or many or self.buried > max(rows, _ROOM)):
            return None
        alive = self.alive
        places = np.full(self.size, -1, np.int64)
        places[alive] = np.arange(len(alive))
        self.codes, self.dead = self.codes[alive], np.zeros(len(alive), np.uint8)
        self.size, self.buried = len(alive), 0
        self._labelled.forget(self.codes)
        for name, pairs in self.ledger.loose.items():
            self.ledger.loose[name] = [(int(places[one]), int(places[other])) for one, other in pairs]
        space, rows_now = self._current()
        for number, some in enumerate(self.sets):
            self.ledger.witness(evidence_of(space, some, self._chance).seen(), number)
        self._cover(space, rows_now, ())
        return places

    def _check(self) -> None:
        """Asserts that the ledger is true of the rows that live and that the rules are those of its evidence."""
        space, alive = self._current()
        every = Evidence(space)
        every.add_pairs(*np.triu_indices(len(alive), 1))
        self.ledger._check(every.keys, self.dead)
        for listing in self._listings:
            assert isinstance(listing, (Watch, Everything))
            listing._check(self.dead, alive)
        again = self.lattice.inverted(self.ledger.outcomes())
        assert {box.tobytes() for box in again} == {box.tobytes() for box in self.boxes}, "rules follow from evidence"
