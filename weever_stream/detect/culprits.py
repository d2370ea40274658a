"""Rows that explain violations: of a thousand new pairs with one row in all of them it is that row, and it counts once.

What a batch of changes breaks is found as pairs, and pairs say little: one wrong zip among a thousand right ones makes
a thousand. `Culprits` looks for the fewest rows that every pair has one of (a vertex cover of the graph of pairs). It
takes the pairs of the rows with most pairs first; one whose two rows are both in none that was taken counts (a maximal
matching: at most as many as the fewest, and at least half), and its row with more pairs is the culprit, or either of
them where they have as many.

Of each rule up to 256 culprits are named, fewer where a batch breaks more than 64 rules, so that what a shard reports
stays small. A name is a hash of the key that is the same in every shard and every batch, so that whoever adds up shards
and batches can tell the same row when it comes again. Pairs are looked at one by one in
Python, so of more than 16,384 pairs of a rule about half of that or more are: counts then are rather too low than too
high.

Cost: about a microsecond a pair that is looked at, and 50 ns for any other; nothing in a batch that breaks no rule.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from weever_stream.detect.texts import keys_of
from weever_stream.index.hashing import mix_keys

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weever_stream.detect.found import Found, RowSet
    from weever_stream.index.arrays import Ints
    from weever_stream.index.arrays import Rows as Positions

__all__ = ["Culprits"]

_LOOKED_AT = 1 << 14
"""Pairs of a rule."""
_NAMED, _NAMED_IN_ALL = 256, 1 << 14
"""Culprits of a rule, and of all rules, that are named."""


class _Piece(NamedTuple):
    """Pairs, and the numbers of their rows as they were when the pairs were found."""

    found: Found
    left: Ints
    right: Ints

    def one_of(self, step: int) -> _Piece:
        """Some of them, by chance: whatever the order in which they were found, every row has its share."""
        some = np.flatnonzero(mix_keys(np.stack([self.left, self.right], 1)) % step == 0)
        return _Piece(self.found.take(some), self.left[some], self.right[some])


@dataclass
class _Broken:
    """Pairs of a rule that are to be explained."""

    pieces: list[_Piece] = field(default_factory=list)
    step: int = 1
    """Of so many pairs one is looked at, the same of early pieces as of late ones."""

    def take(self, piece: _Piece) -> None:
        before, held = self.step, sum(len(one.left) for one in self.pieces)
        while held * before + len(piece.left) > _LOOKED_AT * self.step:
            self.step *= 2
        if self.step > before:
            self.pieces = [one.one_of(self.step) for one in self.pieces]
        self.pieces.append(piece.one_of(self.step) if self.step > 1 else piece)


class Culprits:
    """The rows that explain what a batch breaks in one shard."""

    def __init__(self, key: Sequence[str]) -> None:
        self._key = list(key)
        self._broken: dict[tuple[int, bool], _Broken] = {}

    def take(self, rule: int, found: Found, *, moving: bool) -> None:
        """Pairs that were added. `moving`: they may be no more than pairs that another shard removes."""
        left = found.left.numbers(found.left_rows)
        # A row alone is a pair with nobody: a number that no row has.
        both = found.right is not None and found.right_rows is not None
        right = found.right.numbers(found.right_rows) if both else -1 - left  # type: ignore[union-attr, arg-type]
        self._broken.setdefault((rule, moving), _Broken()).take(_Piece(found, left, right))

    def told(self) -> list[dict[str, Any]]:
        """For each rule that was broken how many culprits there are, and some of them; JSON.

        `named` has for each culprit the hashes of its key and of the key of one partner (None for a rule on one row),
        and whether the partner may as well be the culprit.
        """
        most = min(_NAMED, max(1, _NAMED_IN_ALL // max(1, len(self._broken))))
        return [
            {"rule": rule, "moving": moving, **self._explained(broken, most)}
            for (rule, moving), broken in self._broken.items()
        ]

    def _explained(self, broken: _Broken, most: int) -> dict[str, Any]:
        chosen: list[tuple[int, bool, bool]] = []
        """A pair, whether its right row is the culprit, and whether both may be."""
        left, right = (np.concatenate([piece[at] for piece in broken.pieces]) for at in (1, 2))
        places, names = np.unique(np.concatenate([left, right]), return_inverse=True)
        degrees = np.bincount(names, minlength=len(places))
        ours, theirs = degrees[names[: len(left)]], degrees[names[len(left) :]]
        used: set[int] = set()
        order = np.argsort(-np.maximum(ours, theirs), kind="stable")
        rows = names.tolist()
        for pair in order.tolist():
            one, other = rows[pair], rows[len(left) + pair]
            if one in used or other in used:
                continue
            used |= {one, other}
            chosen.append((pair, bool(theirs[pair] > ours[pair]), bool(theirs[pair] == ours[pair])))
        return {"rows": len(chosen), "named": self._named(broken, chosen[:most])}

    def _named(self, broken: _Broken, chosen: list[tuple[int, bool, bool]]) -> list[tuple[int, int | None, bool]]:
        ends = np.cumsum([len(one.left) for one in broken.pieces])
        named: list[tuple[int, int | None, bool]] = []
        pairs = np.array([pair for pair, _, _ in chosen], np.int64)
        pieces = np.searchsorted(ends, pairs, "right")
        hashes: dict[int, tuple[int, int | None]] = {}
        for piece in np.unique(pieces).tolist():
            found, mine = broken.pieces[piece].found, pairs[pieces == piece]
            inside = mine - (ends[piece] - len(found))
            lefts = self._hashes(found.left, found.left_rows[inside])
            rights: Sequence[int | None] = [None] * len(lefts)
            if found.right is not None and found.right_rows is not None:
                rights = self._hashes(found.right, found.right_rows[inside])
            hashes |= dict(zip(mine.tolist(), zip(lefts, rights, strict=True), strict=True))
        for pair, turned, either in chosen:
            one, other = hashes[pair]
            named.append((other, one, either) if turned and other is not None else (one, other, either))
        return named

    def _hashes(self, rows: RowSet, which: Positions) -> list[int]:
        texts = keys_of(rows.take(which, self._key), self._key).to_pylist()
        return [zlib.crc32(text.encode("utf-8", "surrogatepass")) for text in texts]
