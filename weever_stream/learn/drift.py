"""Tells a rule that the world has left from a row that is wrong: the trend of every rule in force, and when it breaks.

A rule that held for long and now breaks again and again may be right no more: zips were redrawn, a tariff changed. The
violations tell which rows; a `Notice` tells that it is the rule that one should look at. Pure: clock, counts and
position come with each `Observation`.

**What is counted** is not pairs: one wrong row among a thousand makes a thousand of them. It is the *culprits* of a
batch, the rows that have to be looked at to explain the new violations (see `detect.culprits`), at most one for each
change. The last 128 culprits of a rule are remembered by a hash of their keys: an old wrong row that every new one
collides with counts once, not each time.

**A notice** begins when culprits come at a rate that the rule's past does not explain (see `rates`), with the second
batch at the earliest and not before the rule has seen 1,000 changes. It is told once. It ends when the same test, run
the other way with a threshold of 7, says that the rate is back (after 1,500 changes without a culprit, where there used
to be none), when the rule is changed, or when it is no longer in force. Of what happened under a notice no more than
5,000 changes become part of the baseline: enough to know that such things happen, too few to take them for usual.

After 100,000 clean changes a rate of 2% is told within a few hundred changes; the tests measure that, and how often
something is told of nothing: hardly ever, and then of rows that are wrong in bursts, while bursts are new. Cost: some
steps for each rule with a culprit or under a notice; a quiet rule costs nothing, and a name in the saved state.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from weever_stream.errors import StateError
from weever_stream.learn.rates import LOWERED, RAISED, Sums, Test

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["BUCKETS", "Drift", "Notice", "Observation", "Struck", "Trend"]

BUCKETS = 32
"""Of a trend, each of as many changes."""
_VERSION = 1
_LEARNING = 1_000
"""Changes before anything is told."""
_REMEMBERED = 5_000
"""Changes under a notice that become part of the baseline."""
_NARROWEST, _WIDEST = 64, 4_096
"""Changes of a bucket: few at first, twice as many each time the trend is full."""
_BLAMED = 128
_RECENT = 4
"""Buckets that are recent."""


@dataclass(frozen=True)
class Struck:
    """The rows that explain the violations of a rule that a batch added."""

    rows: int
    """How many there are at least. Where rows are not known: pairs."""
    named: Sequence[tuple[int, int | None, bool]] = ()
    """Some of them, or all: a hash of the row's key, that of one partner, and whether it may as well be the partner."""


@dataclass(frozen=True)
class Observation:
    """What a batch did."""

    batch: int
    changes: int
    position: str
    at: str
    """When, in ISO format."""
    struck: Mapping[str, Struck]
    """By rule; those that the batch broke."""
    open: Mapping[str, int] = field(default_factory=dict)
    """Open violations by rule."""


@dataclass(frozen=True)
class Notice:
    """A rule has begun to break at a rate that its past does not explain, or this is over."""

    rule: str
    event: Literal["began", "ended"]
    reason: str
    """`rate` of violating changes, `changed` rule, or a rule that has `gone`."""
    batch: int
    position: str
    at: str
    since: str
    """When it began, as far as can be told: when the score was last 0."""
    since_position: str
    """Of the last batch before that."""
    baseline: float
    """Culprits per change before."""
    recent: float
    """And since then."""
    open: int = 0

    def as_json(self) -> dict[str, Any]:
        """As one JSON object."""
        return asdict(self)


@dataclass(frozen=True)
class Trend:
    """How a rule has been doing."""

    rule: str
    changes: int
    """That it has seen."""
    baseline: float
    """Culprits per change, in the long run."""
    recent: float
    """And in the last buckets; of a rule that drifts, since that began."""
    points: tuple[float | None, ...]
    """Culprits per 1,000 changes, bucket after bucket, the newest last; None before the rule was there."""
    width: int
    """Changes of a bucket."""
    drifting: Notice | None


@dataclass
class _Watched:
    """What is kept of a rule that has had a culprit."""

    seen: int
    """Changes up to which all of this is true, and the sum of the squares of the batches up to there."""
    squares: float
    usual: Sums = field(default_factory=Sums)
    waiting: Sums = field(default_factory=Sums)
    """Since the score was last 0."""
    score: float = 0.0
    since: tuple[str, str] = ("", "")
    """Time and position when the score was last 0."""
    buckets: dict[int, float] = field(default_factory=dict)
    blamed: dict[int, None] = field(default_factory=dict)
    """Hashes of keys, the latest last."""
    drifting: Notice | None = None
    test: Test | None = None
    """Under a notice: that which began it."""

    def settle(self) -> None:
        """The score is 0: what waited is how things are."""
        self.score = 0.0
        self.usual.absorb(self.waiting)
        self.waiting = Sums()

    def pass_by(self, n: int, squares: float) -> None:
        """Changes without a culprit. Not of a rule under a notice, which is looked at in every batch."""
        self.waiting.add(n, 0, squares)
        self.score += Test.of(self.usual).evidence(n, 0) if self.score else 0.0
        if self.score <= 0:
            self.settle()

    def count(self, struck: Struck) -> int:
        """The culprits that were not known, which are known from now on."""
        met, new = set(self.blamed), 0
        for row, partner, either in struck.named:
            known = {one for one in (row, partner) if one is not None and one in met}
            for one in known & self.blamed.keys():
                self.blamed[one] = self.blamed.pop(one)  # the latest
            met |= {row} if partner is None else {row, partner}
            if known:
                continue
            new += 1
            self.blamed[row] = None
            if either and partner is not None:
                self.blamed[partner] = None
        for old in list(self.blamed)[:-_BLAMED]:
            del self.blamed[old]
        return new + max(0, struck.rows - len(struck.named))

    def as_json(self) -> dict[str, Any]:
        return {
            "seen": self.seen,
            "squares": self.squares,
            "usual": list(vars(self.usual).values()),
            "waiting": list(vars(self.waiting).values()),
            "score": self.score,
            "since": list(self.since),
            "buckets": [[at, n] for at, n in self.buckets.items()],
            "blamed": list(self.blamed),
            "drifting": self.drifting and self.drifting.as_json(),
            "test": self.test and list(vars(self.test).values()),
        }

    @classmethod
    def from_json(cls, noted: Mapping[str, Any]) -> _Watched:
        return cls(
            int(noted["seen"]),
            float(noted["squares"]),
            Sums(*map(float, noted["usual"])),
            Sums(*map(float, noted["waiting"])),
            float(noted["score"]),
            (str(noted["since"][0]), str(noted["since"][1])),
            {int(at): float(n) for at, n in noted["buckets"]},
            {int(one): None for one in noted["blamed"]},
            noted["drifting"] and Notice(**noted["drifting"]),
            noted["test"] and Test(*map(float, noted["test"])),
        )


class Drift:
    """Watches the rules of a job, batch by batch."""

    def __init__(self, rules: Mapping[str, str] | None = None) -> None:
        """`rules`: those in force, with their fingerprints."""
        self.batch = -1
        """The last that was observed."""
        self._changes, self._squares, self._width = 0, 0.0, _NARROWEST
        self._last = ("", "")
        self._rules: dict[str, tuple[str, int]] = {}
        """Fingerprints, and the changes before the rule came."""
        self._watched: dict[str, _Watched] = {}
        self._told: tuple[Notice, ...] = ()
        self._untold: tuple[Notice, ...] = ()
        self.adopt(rules or {})

    def adopt(self, rules: Mapping[str, str]) -> None:
        """From now on these are in force. One that is new or was changed begins anew; notices of old ones end."""
        ended = []
        for name, (fingerprint, _) in list(self._rules.items()):
            if rules.get(name) == fingerprint:
                continue
            watched = self._watched.pop(name, None)
            if watched is not None and watched.drifting is not None:
                ended.append(self._ended(watched, "changed" if name in rules else "gone"))
            del self._rules[name]
        self._rules = {name: self._rules.get(name, (mark, self._changes)) for name, mark in rules.items()}
        self._untold += tuple(ended)

    @property
    def drifting(self) -> tuple[str, ...]:
        """Rules under a notice."""
        return tuple(name for name, one in self._watched.items() if one.drifting is not None)

    def observe(self, seen: Observation) -> tuple[Notice, ...]:
        """Takes a batch in, and tells what begins and ends with it. A batch that is repeated is told as before."""
        if seen.batch <= self.batch:
            return self._told if seen.batch == self.batch else ()
        before, before_squares = self._changes, self._squares
        self._changes += seen.changes
        self._squares += float(seen.changes) ** 2
        self._widen()
        told = list(self._untold)
        struck = {name: one for name, one in seen.struck.items() if name in self._rules and one.rows}
        for name in dict.fromkeys([*self.drifting, *struck]):
            watched = self._watched.get(name)
            if watched is None:
                watched = self._watched[name] = self._quiet(name, before, before_squares)
            if watched.drifting is None and before > watched.seen:
                watched.pass_by(before - watched.seen, before_squares - watched.squares)
            culprits = min(watched.count(struck[name]), seen.changes) if name in struck else 0
            self._spread(watched, before, culprits)
            watched.seen, watched.squares = self._changes, self._squares
            notice = self._tested(name, watched, seen, culprits)
            told += [notice] if notice else []
        self.batch, self._last, self._untold = seen.batch, (seen.at, seen.position), ()
        self._told = tuple(told)
        return self._told

    def trend(self, rule: str) -> Trend:
        """How a rule has been doing. Raises `KeyError` for one that is not in force."""
        _, came = self._rules[rule]
        watched = self._watched.get(rule)
        points: list[float | None] = []
        now = self._changes // self._width
        recent = recent_changes = 0.0
        for at in range(max(0, now - BUCKETS + 1), now + 1):
            first, last = max(came, at * self._width), min(self._changes, (at + 1) * self._width)
            if last <= first:
                if at < now:
                    points.append(None)
                continue
            n = watched.buckets.get(at, 0.0) if watched else 0.0
            points.append(1000 * n / (last - first))
            if at > now - _RECENT:
                recent, recent_changes = recent + n, recent_changes + last - first
        rate = recent / recent_changes if recent_changes else 0.0
        usual = drifting = None
        if watched is not None:
            usual, drifting = watched.usual, watched.drifting
            rate = watched.waiting.k / max(1.0, watched.waiting.n) if drifting else rate
        baseline = usual.k / max(1.0, usual.n) if usual else 0.0
        return Trend(rule, self._changes - came, baseline, rate, tuple(points), self._width, drifting)

    def trends(self) -> Iterable[Trend]:
        """The same of all rules in force."""
        return (self.trend(rule) for rule in self._rules)

    def _tested(self, name: str, watched: _Watched, seen: Observation, culprits: int) -> Notice | None:
        """Puts a batch into the score of a rule."""
        n, square = seen.changes, float(seen.changes) ** 2
        if watched.test is not None and watched.drifting is not None:
            watched.waiting.add(n, culprits, square)
            watched.score = max(0.0, watched.score - watched.test.evidence(n, culprits))
            if watched.score < LOWERED:
                return None
            over = self._ended(watched, "rate", seen)
            watched.drifting, watched.test = None, None
            watched.waiting = watched.waiting.weighing(_REMEMBERED)
            watched.settle()
            return over
        if watched.usual.n < _LEARNING:
            watched.waiting.add(n, culprits, square)
            watched.settle()
            return None
        if not watched.score:
            watched.since = self._last
        test = Test.of(watched.usual)
        watched.waiting.add(n, culprits, square)
        watched.score += min(test.evidence(n, culprits), RAISED / 2)
        if watched.score <= 0:
            watched.settle()
        if watched.score < RAISED:
            return None
        usual, lately = watched.usual, watched.waiting
        began = Notice(
            name, "began", "rate", seen.batch, seen.position, seen.at, *watched.since,
            usual.k / usual.n, lately.k / lately.n, seen.open.get(name, 0),
        )  # fmt: skip
        watched.drifting, watched.test, watched.score = began, test, 0.0
        return began

    def _ended(self, watched: _Watched, reason: str, seen: Observation | None = None) -> Notice:
        began = watched.drifting
        assert began is not None
        at, position = (seen.at, seen.position) if seen else self._last
        recent = watched.waiting.k / max(1.0, watched.waiting.n)
        left = seen.open.get(began.rule, 0) if seen else 0
        return Notice(
            began.rule, "ended", reason, seen.batch if seen else self.batch, position, at, began.since,
            began.since_position, began.baseline, recent, left,
        )  # fmt: skip

    def _quiet(self, name: str, changes: int, squares: float) -> _Watched:
        """A rule that has had no culprit so far."""
        came = self._rules[name][1]
        watched = _Watched(came, 0.0)
        if changes > came:
            # Rules that came later have seen a share of the batches; what they were is not worth keeping.
            watched.pass_by(changes - came, squares * (changes - came) / changes)
        watched.seen, watched.squares = changes, squares
        return watched

    def _widen(self) -> None:
        """Makes buckets so wide that a trend has room for all there was, up to a point; later it has for the latest."""
        while self._changes > BUCKETS * self._width and self._width < _WIDEST:
            self._width *= 2
            for watched in self._watched.values():
                old, watched.buckets = watched.buckets, {}
                for at, n in old.items():
                    watched.buckets[at // 2] = watched.buckets.get(at // 2, 0.0) + n

    def _spread(self, watched: _Watched, before: int, culprits: int) -> None:
        """Puts culprits into the buckets that the batch's changes lie in."""
        now = self._changes // self._width
        n = self._changes - before
        if culprits:
            for at in range(max(before // self._width, now - BUCKETS + 1), now + 1):
                share = min(self._changes, (at + 1) * self._width) - max(before, at * self._width)
                watched.buckets[at] = watched.buckets.get(at, 0.0) + culprits * share / n
        watched.buckets = {at: m for at, m in watched.buckets.items() if at > now - BUCKETS and m}

    def as_json(self) -> dict[str, Any]:
        """All that is kept, for `from_json`."""
        return {
            "version": _VERSION,
            "batch": self.batch,
            "changes": self._changes,
            "squares": self._squares,
            "width": self._width,
            "last": list(self._last),
            "rules": {name: list(one) for name, one in self._rules.items()},
            "watched": {name: one.as_json() for name, one in self._watched.items()},
            "told": [one.as_json() for one in self._told],
            "untold": [one.as_json() for one in self._untold],
        }

    @classmethod
    def from_json(cls, noted: Mapping[str, Any]) -> Drift:
        """What was kept. Raises `StateError` for what another release kept, or nobody."""
        version = noted.get("version")
        if version != _VERSION:
            raise StateError(
                f"what is noted of the drift of rules is of version {version}, and this release knows {_VERSION}",
                hint="go on with the release that wrote it",
            )
        try:
            drift = cls()
            drift.batch, drift._changes = int(noted["batch"]), int(noted["changes"])
            drift._squares, drift._width = float(noted["squares"]), int(noted["width"])
            drift._last = (str(noted["last"][0]), str(noted["last"][1]))
            drift._rules = {name: (str(mark), int(came)) for name, (mark, came) in noted["rules"].items()}
            drift._watched = {name: _Watched.from_json(one) for name, one in noted["watched"].items()}
            drift._told = tuple(Notice(**one) for one in noted["told"])
            drift._untold = tuple(Notice(**one) for one in noted["untold"])
        except (LookupError, TypeError, ValueError, AttributeError):
            raise StateError(
                "what is noted of the drift of rules is damaged", hint="restore it from a copy of the checkpoint"
            ) from None
        return drift
