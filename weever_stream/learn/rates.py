"""Rates before and after: how often a rule is broken, how much that scatters, and a test for whether it has risen.

**The baseline** is the rate of culprits per change, forgotten with a memory of 200,000 changes. What is compared with
is not the rate itself but the most it may well be, two standard deviations up, and never less than 1 in 5,000: so many
rows are wrong anyway. Counts that come in bursts scatter more than chance has it; the factor by which they do (the
dispersion of a quasi-Poisson count, at least 1) makes every burst count that much less.

**The test** is Page's CUSUM, a likelihood-ratio test that may look after every batch. With p for the baseline and q for
the rate that would be news (three times p, and never less than 1 in 200), a batch of n changes with k culprits adds

    (k ln(q / p) - n (q - p)) / dispersion

to a score, which never falls below 0. A score of 16 is news: while the rate is p, that takes e^16, nine million,
changes or more on average (Lorden 1971), and much longer in fact, since the rate is mostly below p. No batch adds more
than half of it, so one bad load alone is never news. While the score is above 0 what is observed waits: it becomes part
of the baseline only if the score returns to 0. A rise to less than about 1.8 times p is never news, and is followed.

Pure arithmetic, in constant time.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import exp, log, sqrt

__all__ = ["LOWERED", "RAISED", "Sums", "Test"]

_MEMORY = 200_000.0
"""Changes after which a baseline has forgotten all but 1/e of what was."""
_LEAST = 1 / 5_000
"""No baseline is taken for less."""
_NEWS, _TIMES = 1 / 200, 3.0
"""The rate that is news: at least this, and so many times the baseline."""
RAISED, LOWERED = 16.0, 7.0
"""Scores at which a notice begins and ends."""
_SCATTER = 3.0
"""Culprits that say, before any have been seen, that they scatter no more than chance has it."""


@dataclass
class Sums:
    """Of batches: their changes, culprits, and the products of those that tell how culprits scatter."""

    n: float = 0.0
    k: float = 0.0
    kk: float = 0.0
    kn: float = 0.0
    nn: float = 0.0

    def add(self, n: float, k: float, nn: float) -> None:
        """A batch, or several without a culprit, whose squares of changes sum up to `nn`."""
        self.n, self.k, self.nn = self.n + n, self.k + k, self.nn + nn
        self.kk, self.kn = self.kk + k * k, self.kn + k * n

    def absorb(self, other: Sums) -> None:
        """Takes in what came later, and forgets as much of what was before."""
        kept = exp(-other.n / _MEMORY)
        # Of one very long stretch no more is kept than if it had come in many short ones.
        taken = (1 - kept) * _MEMORY / other.n if other.n > 0 else 1.0
        for name, value in vars(other).items():
            setattr(self, name, kept * getattr(self, name) + taken * value)

    def weighing(self, changes: float) -> Sums:
        """The same as if it were of so many changes, where it is of more."""
        share = min(1.0, changes / self.n) if self.n else 1.0
        return Sums(*(share * value for value in vars(self).values()))

    def dispersion(self) -> float:
        """How much more culprits scatter than chance has it."""
        rate = self.k / self.n if self.n else 0.0
        squares = self.kk - 2 * rate * self.kn + rate * rate * self.nn
        return max(1.0, (squares + _SCATTER) / (self.k + _SCATTER))


@dataclass(frozen=True)
class Test:
    """The two rates that are told apart."""

    usual: float
    news: float
    dispersion: float

    @classmethod
    def of(cls, sums: Sums) -> Test:
        """Against a baseline."""
        scatter = sums.dispersion()
        # The square root of a count scatters by one half, whatever the count: this is its upper end by two of those.
        most = scatter * (sqrt(sums.k / scatter + 1) + 1) ** 2 / max(sums.n, 1.0)
        usual = max(most, _LEAST)
        return cls(usual, max(_NEWS, _TIMES * usual), scatter)

    def evidence(self, n: float, k: float) -> float:
        """What a batch says for news, or, where it is negative, against it."""
        return (k * log(self.news / self.usual) - n * (self.news - self.usual)) / self.dispersion
