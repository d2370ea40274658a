"""What is known of the evidence of a table: which there are, and why each is known to be there still.

An evidence in the boxes of the watched sets is *counted*: every pair that has it is listed when it comes and when it
goes, under the first set that it satisfies, so its number is exact and at 0 it is no more. Any other evidence is
*loose*: it is known by witnesses, pairs that were seen to have it. When the last of them goes, it may or may not be
there still; it is no more known, and what it forbade has to be checked.

Evidences are words of outcomes (see `discover.evidence`); of the two ways round of a pair the lesser stands for both. A
pair that a set lists both ways counts twice, when it comes and when it goes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from weever_stream.discover.evidence import Evidence, exchanged_keys, outcomes_of
from weever_stream.learn.lattice import ANYTHING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from numpy.typing import NDArray

    from weever_stream.discover.predicates import Space
    from weever_stream.index.arrays import Bytes, Ints, Rows

    Keys = NDArray[np.uint64]
    Pair = tuple[int, int]

__all__ = ["Ledger", "News"]

WITNESSES = 4
"""Pairs that are remembered for an evidence that is not counted."""


@dataclass
class News:
    """Evidences that came and went, each with a pair that has or had it, in the way round that is kept."""

    came: dict[bytes, Pair] = field(default_factory=dict)
    went: dict[bytes, Pair] = field(default_factory=dict)

    def come(self, name: bytes, pair: Pair) -> None:
        """An evidence is there that was not."""
        if self.went.pop(name, None) is None:
            self.came[name] = pair

    def go(self, name: bytes, pair: Pair) -> None:
        """An evidence is not there that was."""
        if self.came.pop(name, None) is None:
            self.went[name] = pair


class Ledger:
    """The evidences of one table."""

    def __init__(self, space: Space, bits: NDArray[np.uint8]) -> None:
        """`bits`: the bit of each outcome in a box."""
        self._space, self._bits = space, bits
        self.words = Evidence(space).words
        self.sets: NDArray[np.uint8] = np.zeros((0, len(space.comparisons)), np.uint8)
        """The boxes of the watched sets."""
        self.counts: dict[bytes, int] = {}
        self.loose: dict[bytes, list[Pair]] = {}
        self._known: dict[bytes, tuple[bytes, bool, int]] = {}
        """For words that were seen: the evidence they stand for, whether exchanged, and its set, or -1."""

    def __len__(self) -> int:
        return len(self.counts) + len(self.loose)

    def __contains__(self, name: bytes) -> bool:
        return name in self.counts or name in self.loose

    def keys(self, names: Iterable[bytes] | None = None) -> Keys:
        """Evidences as words, a row each; all that are known by default."""
        some = [*self.counts, *self.loose] if names is None else [*names]
        return np.frombuffer(b"".join(some), np.uint64).reshape(-1, self.words)

    def outcomes(self, names: Iterable[bytes] | None = None) -> NDArray[np.uint8]:
        """Outcomes of evidences and, behind them all, of the same evidences exchanged."""
        keys = self.keys(names)
        both = np.concatenate([keys, exchanged_keys(self._space, keys)])
        return outcomes_of(self._space, both)

    def watch(self, boxes: NDArray[np.uint8]) -> None:
        """Other sets are watched from now on. What was counted has to be counted again."""
        self.sets, self._known = boxes, {}

    def standing(self, keys: Keys) -> list[tuple[bytes, bool, int]]:
        """For words the evidence that they stand for, whether it is exchanged, and the first set it satisfies or -1."""
        names = [key.tobytes() for key in keys]
        new = [at for at, name in enumerate(names) if name not in self._known]
        if new:
            mine, turned = keys[new], exchanged_keys(self._space, keys[new])
            inside = self._inside(mine) | self._inside(turned)
            first = np.where(inside.any(1), inside.argmax(1), -1) if len(self.sets) else np.full(len(new), -1)
            for at, other, number in zip(new, turned, first.tolist(), strict=True):
                name, reverse = names[at], other.tobytes()
                self._known[name] = (min(name, reverse), reverse < name, number)
        return [self._known[name] for name in names]

    def _inside(self, keys: Keys) -> NDArray[np.bool_]:
        """Which evidences (rows) satisfy which sets (columns)."""
        bits = self._bits[outcomes_of(self._space, keys)]
        inside = np.ones((len(keys), len(self.sets)), np.bool_)
        for at in range(bits.shape[1]):
            if (self.sets[:, at] != ANYTHING).any():
                inside &= (bits[:, at, None] & self.sets[None, :, at]) != 0
        return inside

    def tally(self, seen: tuple[Keys, Ints, Rows], number: int, sign: int, news: News) -> None:
        """Takes in what the pairs of a watched set say that come (+1) or go (-1)."""
        keys, counts, pairs = seen
        for (name, turned, owner), count, pair in zip(
            self.standing(keys), counts.tolist(), pairs.tolist(), strict=True
        ):
            if owner != number:
                continue
            before = self.counts.get(name, 0)
            after = before + sign * count
            witness = (pair[1], pair[0]) if turned else (pair[0], pair[1])
            assert after >= 0, "no pair goes that has not come"
            if after:
                self.counts[name] = after
                if not before:
                    news.come(name, witness)
            else:
                del self.counts[name]
                news.go(name, witness)

    def bury(self, dead: Bytes, news: News) -> None:
        """Forgets witnesses that are dead, and loose evidences that have no other."""
        if not self.loose:
            return
        names = list(self.loose)
        at = np.repeat(np.arange(len(names)), [len(self.loose[name]) for name in names])
        pairs = np.array([pair for name in names for pair in self.loose[name]], np.int64).reshape(-1, 2)
        gone = (dead[pairs] != 0).any(1)
        for number in np.unique(at[gone]).tolist():
            name = names[number]
            left = [pair for pair in self.loose[name] if not dead[pair[0]] and not dead[pair[1]]]
            if left:
                self.loose[name] = left
            else:
                news.go(name, self.loose.pop(name)[-1])

    def see(self, seen: tuple[Keys, Ints, Rows], rows: Rows, news: News | None = None) -> None:
        """Takes in pairs that were met by the way, as witnesses of loose evidences. `rows` are the numbers of rows."""
        keys, _, pairs = seen
        for (name, turned, owner), pair in zip(self.standing(keys), pairs.tolist(), strict=True):
            if pair[0] < 0 or owner >= 0:
                continue
            pair = (int(rows[pair[0]]), int(rows[pair[1]]))
            witnesses = self.loose.setdefault(name, [])
            if not witnesses and news is not None:
                news.come(name, (pair[1], pair[0]) if turned else pair)
            if len(witnesses) < WITNESSES:
                witnesses.append((pair[1], pair[0]) if turned else pair)

    def witness(self, seen: tuple[Keys, Ints, Rows], number: int) -> None:
        """Keeps a pair for each evidence that is counted under a set: it may be watched no longer."""
        keys, _, pairs = seen
        for (name, turned, owner), pair in zip(self.standing(keys), pairs.tolist(), strict=True):
            if owner == number and name in self.counts:
                self.loose[name] = [(pair[1], pair[0]) if turned else (pair[0], pair[1])]

    def owned(self, boxes: Sequence[int]) -> list[bytes]:
        """Loose evidences that the sets which are watched now hold: they are to be counted instead."""
        names = list(self.loose)
        told = self.standing(self.keys(names))
        return [name for name, (_, _, owner) in zip(names, told, strict=True) if owner in boxes]

    def _check(self, every: Keys, dead: Bytes) -> None:
        """Asserts that it is true of a table that has just these evidences."""
        standing = self.standing(every)
        assert {*self.counts, *self.loose} <= {name for name, _, _ in standing}, "every evidence has a pair"
        assert {name for name, _, owner in standing if owner >= 0} == set(self.counts), "all that is watched is counted"
        for pairs in self.loose.values():
            assert pairs, "what is not counted has witnesses"
            assert not dead[np.array(pairs)].any(), "witnesses live"
