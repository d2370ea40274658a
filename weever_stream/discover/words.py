"""Rules told as a person would tell them, and named after that: "zip determines city", `zip_determines_city`.

Families that have words of their own: keys, constants, dependencies, and two columns that rise together or against each
other. Any other rule is told as what no two rows may have at once.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from weever_stream.rules.model import Column, Op

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from weever_stream.rules.model import Predicate

__all__ = ["name_of", "tell"]

_NAME = 80
_COMPARED = ", compared with another row"
_PAIR = {
    Op.EQ: "the same {0}",
    Op.NE: "a different {0}",
    Op.LT: "a smaller {0}",
    Op.LE: "a smaller or equal {0}",
    Op.GT: "a greater {0}",
    Op.GE: "a greater or equal {0}",
}
_BETWEEN = {
    Op.EQ: "{0} equal to {1}",
    Op.NE: "{0} different from {1}",
    Op.LT: "{0} below {1}",
    Op.LE: "{0} not above {1}",
    Op.GT: "{0} above {1}",
    Op.GE: "{0} not below {1}",
}


def tell(predicates: Sequence[Predicate], distinct: Callable[[str], int] = lambda name: 0) -> str:
    """A rule in words. Of a key's columns the one with the most distinct values is told to be unique."""
    same = [p for p in predicates if _same_column(p)]
    equal = [_column(p) for p in same if p.op is Op.EQ]
    rest = [p for p in same if p.op is not Op.EQ]
    if len(same) == len(predicates):
        if not rest:
            unique = max(equal, key=distinct)
            within = [name for name in equal if name != unique]
            return f"{unique} is unique" + (f" within {_and(within)}" if within else "")
        if len(rest) == 1 and rest[0].op is Op.NE:
            column = _column(rest[0])
            if not equal:
                return f"{column} is the same in all rows"
            return f"{_and(equal)} {'determines' if len(equal) == 1 else 'determine'} {column}"
        if len(rest) == 2 and all(p.op.is_order for p in rest):
            return _orders(rest[0], rest[1]) + (f" within {_and(equal)}" if equal else "")
    return "no row has " + _and([_phrase(p) for p in predicates]) + _COMPARED


def _orders(one: Predicate, other: Predicate) -> str:
    """Two columns in order, whichever of `<`, `<=` deny what."""
    if _falls(one) == _falls(other):
        strict = _strict(one) and _strict(other)
        return f"{_column(other)} falls as {_column(one)} rises" + ("" if strict else ", and strictly")
    if _strict(one) and _strict(other):
        return f"{_column(one)} and {_column(other)} rise together"
    if not _strict(one) and not _strict(other):
        return f"{_column(one)} and {_column(other)} rise strictly together"
    leader, follower = (one, other) if _strict(other) else (other, one)
    # `t.A <= s.A and t.B > s.B` is denied: B follows from A, and never falls as A rises.
    return f"{_column(leader)} determines {_column(follower)}, and both rise together"


def name_of(words: str) -> str:
    """A name for a rule, from its words."""
    plain = re.sub(r"\W+", "_", words.removeprefix("no row has ").removesuffix(_COMPARED)).strip("_").lower()
    return plain[:_NAME].rstrip("_") or "rule"


def _phrase(predicate: Predicate) -> str:
    left, right = predicate.columns
    if left.row == right.row:
        return _BETWEEN[predicate.op].format(left.name, right.name) + (" in it" if left.row == "t" else " in the other")
    if left.name == right.name:
        return _PAIR[predicate.op].format(left.name)
    return _BETWEEN[predicate.op].format(left.name, f"the other's {right.name}")


def _same_column(predicate: Predicate) -> bool:
    left, right = predicate.columns
    return left.row != right.row and left.name == right.name


def _column(predicate: Predicate) -> str:
    assert isinstance(predicate.left, Column)
    return predicate.left.name


def _strict(predicate: Predicate) -> bool:
    return not predicate.op.value & Op.EQ.value


def _falls(predicate: Predicate) -> bool:
    return bool(predicate.op.value & Op.GT.value)


def _and(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]
