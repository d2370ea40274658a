"""Rules told as a person would tell them, and named after that: "zip determines city", `zip_determines_city`.

Families that have words of their own: keys, constants, dependencies, and two columns that rise together or against each
other. Any other rule is told as what no two rows may have at once. A `Saying` is a rule understood that far; rules that
say the same of different columns are told together: "zip determines city and state".
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from weever_stream.rules.model import Column, Op

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import TypeAlias

    from weever_stream.rules.model import Predicate

    Mark: TypeAlias = Callable[[str], str]
    """How the name of a column is written."""

__all__ = ["Kind", "Saying", "families", "name_of", "tell", "understand"]

Kind = Literal["unique", "constant", "determines", "agree", "rise", "fall", "apart", "other"]
Manner = Literal["", "determines", "strictly"]

_NAME = 80
_COMPARED = ", compared with another row"
_TWO_ROWS = "no two rows have "
_ONE_ROW = "no row has "
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


@dataclass(frozen=True)
class Saying:
    """What a rule says: of which columns (`subject`), about which others (`object`), and within which."""

    kind: Kind
    subject: tuple[str, ...]
    object: tuple[str, ...] = ()
    within: tuple[tuple[str, ...], ...] = ()
    """Columns whose values must be the same; a key can be one within any of several sets of them."""
    manner: Manner = ""
    """Of an order: whether one column also determines the other, or both are strict."""
    predicates: tuple[Predicate, ...] = ()
    """Of a rule without words of its own."""

    def words(self, mark: Mark = str) -> str:
        """The rule in words."""
        return _WORDS[self.kind](self, mark)

    @property
    def family(self) -> tuple[Any, ...]:
        """Sayings of one family can be told as one."""
        if self.kind in ("constant", "apart") or (self.kind == "unique" and not self.within):
            return (self.kind, *(self.subject if self.kind == "apart" else ()))
        if self.kind in ("unique", "determines"):
            return (self.kind, self.subject)
        return (self.kind, self)


def understand(predicates: Sequence[Predicate], distinct: Callable[[str], int] = lambda name: 0) -> Saying:
    """What a rule says. Of a key's columns the one with the most distinct values is told to be unique."""
    same = [p for p in predicates if _same_column(p)]
    equal = tuple(_column(p) for p in same if p.op is Op.EQ)
    rest = [p for p in same if p.op is not Op.EQ]
    if len(same) < len(predicates):
        return _between(predicates)
    if not rest:
        unique = max(equal, key=distinct)
        return Saying("unique", (unique,), within=_within(tuple(name for name in equal if name != unique)))
    if all(p.op is Op.NE for p in rest):
        if not equal and len(rest) == 1:
            return Saying("constant", (_column(rest[0]),))
        if equal:
            kind: Kind = "determines" if len(rest) == 1 else "agree"
            return Saying(kind, equal, tuple(map(_column, rest)))
    if len(rest) == 2 and all(p.op.is_order for p in rest):
        return replace(_order(rest[0], rest[1]), within=_within(equal))
    return Saying("other", (), predicates=tuple(predicates))


def tell(predicates: Sequence[Predicate], distinct: Callable[[str], int] = lambda name: 0) -> str:
    """A rule in words."""
    return understand(predicates, distinct).words()


def families(sayings: Iterable[Saying]) -> list[tuple[Saying, list[int]]]:
    """Sayings told together: each family as one, with the places of its members, in the order of the first of them."""
    members: dict[tuple[Any, ...], list[tuple[int, Saying]]] = {}
    for at, one in enumerate(sayings):
        members.setdefault(one.family, []).append((at, one))
    return [(_joined([one for _, one in some]), [at for at, _ in some]) for some in members.values()]


def name_of(words: str) -> str:
    """A name for a rule, from its words."""
    plain = words.removeprefix(_ONE_ROW).removeprefix(_TWO_ROWS).removesuffix(_COMPARED)
    plain = re.sub(r"\W+", "_", re.sub(r"\bwithin an? ", "within ", plain)).strip("_").lower()
    return plain[:_NAME].rstrip("_") or "rule"


def _between(predicates: Sequence[Predicate]) -> Saying:
    """A rule that compares different columns."""
    only = predicates[0]
    left, right = only.columns
    if len(predicates) == 1 and only.op is Op.EQ and left.row != right.row:
        return Saying("apart", (left.name,), (right.name,))
    return Saying("other", (), predicates=tuple(predicates))


def _order(one: Predicate, other: Predicate) -> Saying:
    """Two columns in order, whichever of `<`, `<=` deny what.

    `t.A <= s.A and t.B > s.B` is denied: rows of one A have one B, so B follows from A, and never falls as A rises.
    Where both predicates hold for equal values too, no two rows agree in either column.
    """
    kind: Kind = "fall" if _falls(one) == _falls(other) else "rise"
    manner: Manner = ""
    if not _strict(one) and not _strict(other):
        manner = "strictly"
    elif _strict(one) != _strict(other):
        manner = "determines"
        if _strict(one):
            one, other = other, one
    return Saying(kind, (_column(one),), (_column(other),), manner=manner)


def _joined(members: Sequence[Saying]) -> Saying:
    """The members of a family as one saying."""
    first = members[0]
    if first.family[0] in ("unique", "constant") and not first.within:
        return replace(first, subject=tuple(dict.fromkeys(name for one in members for name in one.subject)))
    objects = tuple(dict.fromkeys(name for one in members for name in one.object))
    return replace(first, object=objects, within=tuple(some for one in members for some in one.within))


def _unique(one: Saying, mark: Mark) -> str:
    names = [mark(name) for name in one.subject]
    if len(names) > 1:
        return f"{_and(names)} are each unique"
    return f"{names[0]} is unique{_told_within(one, mark)}"


def _constant(one: Saying, mark: Mark) -> str:
    return f"{_and([mark(name) for name in one.subject])} {_verb(one.subject, 'is', 'are')} the same in all rows"


def _determines(one: Saying, mark: Mark) -> str:
    subject, what = ([mark(name) for name in names] for names in (one.subject, one.object))
    return f"{_and(subject)} {_verb(subject, 'determines', 'determine')} {_and(what)}"


def _agree(one: Saying, mark: Mark) -> str:
    subject, what = ([mark(name) for name in names] for names in (one.subject, one.object))
    return f"rows with the same {_and(subject)} agree in {_and(what, 'or')}"


def _rise(one: Saying, mark: Mark) -> str:
    leader, follower = mark(one.subject[0]), mark(one.object[0])
    if one.manner == "determines":
        return f"{leader} determines {follower}, and both rise together{_told_within(one, mark)}"
    return f"{leader} and {follower} rise {one.manner}{' ' * bool(one.manner)}together{_told_within(one, mark)}"


def _fall(one: Saying, mark: Mark) -> str:
    leader, follower = mark(one.subject[0]), mark(one.object[0])
    if one.manner == "determines":
        return f"{leader} determines {follower}, which falls as {leader} rises{_told_within(one, mark)}"
    return f"{follower} falls {one.manner}{' ' * bool(one.manner)}as {leader} rises{_told_within(one, mark)}"


def _apart(one: Saying, mark: Mark) -> str:
    return f"no {mark(one.subject[0])} is the {_and([mark(name) for name in one.object], 'or')} of another row"


def _other(one: Saying, mark: Mark) -> str:
    phrases = _and([_phrase(p, mark) for p in one.predicates])
    if all(_same_column(p) and not p.op.is_order for p in one.predicates):
        return _TWO_ROWS + phrases
    return _ONE_ROW + phrases + _COMPARED


_WORDS: dict[Kind, Callable[[Saying, Mark], str]] = {
    "unique": _unique,
    "constant": _constant,
    "determines": _determines,
    "agree": _agree,
    "rise": _rise,
    "fall": _fall,
    "apart": _apart,
    "other": _other,
}


def _phrase(predicate: Predicate, mark: Mark) -> str:
    left, right = predicate.columns
    one, other = mark(left.name), mark(right.name)
    if left.row == right.row:
        return _BETWEEN[predicate.op].format(one, other) + (" in it" if left.row == "t" else " in the other")
    if left.name == right.name:
        return _PAIR[predicate.op].format(one)
    return _BETWEEN[predicate.op].format(one, f"the other's {other}")


def _told_within(one: Saying, mark: Mark) -> str:
    """`within a state`, or within any of several."""
    told = [f"within {_article(some[0])} {_and([mark(name) for name in some])}" for some in one.within]
    return f" {_and(told)}" if told else ""


def _within(names: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    return (names,) if names else ()


def _article(name: str) -> str:
    return "an" if name[:1].lower() in tuple("aeiou") else "a"


def _verb(names: Sequence[str], one: str, many: str) -> str:
    return one if len(names) == 1 else many


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


def _and(words: Sequence[str], joint: str = "and") -> str:
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + f" {joint} " + words[-1]
