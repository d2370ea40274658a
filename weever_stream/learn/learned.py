"""What a change teaches: rules that hold from now on, and rules that no longer do, each with the pair that is why.

A rule goes because a pair of rows breaks it, or because a more general one takes its place; that one holds because the
last pair that broke it is gone. A rule comes because that is so, or in the place of a broken one that it refines.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from weever_stream.discover.logic import closures, exchange

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weever_stream.learn.keeper import Keeper
    from weever_stream.learn.ledger import News
    from weever_stream.rules import Rule

    Boxes = NDArray[np.uint8]
    Pair = tuple[int, int]

__all__ = ["Learned", "RuleChange", "reasons"]


@dataclass(frozen=True)
class RuleChange:
    """A rule that came or went, and the pair of rows (t, s) that is the reason."""

    rule: Rule
    words: str
    left_key: tuple[Any, ...] | None = None
    right_key: tuple[Any, ...] | None = None
    left_values: dict[str, Any] | None = None
    """The columns that the rule reads, of t."""
    right_values: dict[str, Any] | None = None


@dataclass(frozen=True)
class Learned:
    """What some changes taught."""

    added: tuple[RuleChange, ...] = ()
    dropped: tuple[RuleChange, ...] = ()
    changes: int = 0
    """Rows that were put or dropped; stale changes are not among them."""

    def __bool__(self) -> bool:
        """Whether any rule came or went."""
        return bool(self.added or self.dropped)


def reasons(keeper: Keeper, added: Boxes, dropped: Boxes, news: News) -> tuple[list[Pair | None], list[Pair | None]]:
    """For rules that came and rules that went the numbers of the rows that are the reason."""
    came, went = _Pairs(keeper, news.came), _Pairs(keeper, news.went)
    back, broken = went.inside(added), came.inside(dropped)
    # A rule that went unbroken gave way to one that says more; one that came unbroken is left of one that said more.
    why_added = _of_those_that_say_more(keeper, added, back, dropped, broken)
    why_dropped = _of_those_that_say_more(keeper, dropped, broken, added, back)
    some = next(iter(news.came.values()), None)  # the first pair of a table that had none
    return [pair or some for pair in why_added], why_dropped


def _of_those_that_say_more(
    keeper: Keeper, boxes: Boxes, pairs: list[Pair | None], others: Boxes, theirs: list[Pair | None]
) -> list[Pair | None]:
    """The pairs of some rules; for one without any that of another by which it is implied, by whatever law."""
    found = list(pairs)
    waiting = [at for at, pair in enumerate(pairs) if pair is None]
    known = [(at, pair) for at, pair in enumerate(theirs) if pair is not None]
    if not waiting or not known:
        return found
    space, rules = keeper.laws, keeper.lattice.rules
    closed, _ = closures(space, rules(boxes[waiting]))
    plain = rules(others[[at for at, _ in known]])
    turned = exchange(space, plain)
    for at, mine in zip(waiting, closed, strict=True):
        says, says_turned = (~(some & ~mine).any(1) for some in (plain, turned))
        if says.any():
            found[at] = known[says.argmax()][1]
        elif says_turned.any():
            left, right = known[says_turned.argmax()][1]
            found[at] = right, left
    return found


class _Pairs:
    """Evidences with a pair each, both ways round."""

    def __init__(self, keeper: Keeper, named: dict[bytes, Pair]) -> None:
        self._keeper, self._named = keeper, named

    def inside(self, boxes: Boxes) -> list[Pair | None]:
        """For each box a pair that lies in it."""
        if not self._named or not len(boxes):
            return [None] * len(boxes)
        pairs = [*self._named.values(), *((right, left) for left, right in self._named.values())]
        found = self._keeper.lattice.broken(boxes, self._keeper.ledger.outcomes(self._named))
        return [pairs[at] if at >= 0 else None for at in found.tolist()]
