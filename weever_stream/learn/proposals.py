"""Learned rules against the rules in force: which are worth adopting, and which in force no longer hold.

A rule is a box: for each comparison the outcomes that it denies. It follows from others where its box lies in the union
of theirs; a box that no single one holds is split by the outcomes of a comparison that it makes, and each half is asked
again (as `discover.settled` does, but without a table: a comparison that the rule does not make may have no outcome at
all, because of a null, and is never split). So what is called implied is; some that is may be missed.

Rules in force that no learned rule implies do not hold any more, if they are in the space that is searched: learned
columns, compared with themselves, at most so many predicates. Others nothing is known of.

Cost: for each learned rule a pass over the rules in force, and back; thousands of each take seconds.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from weever_stream.rules import parse_rule
from weever_stream.rules.canonical import exchanged
from weever_stream.rules.model import Column

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from weever_stream.learn.holding import Ceased, Held, Holding
    from weever_stream.rules.model import Operand, Predicate, Rule

__all__ = ["Broken", "Known", "Proposal", "broken", "follows", "proposed", "shape"]

_Box: TypeAlias = "dict[tuple[Operand, Operand], int]"
_ANYTHING, _NO_OUTCOME = 15, 8
_PARTS = 200
"""Parts of a box that are looked at before it is given up."""


@dataclass(frozen=True)
class Known:
    """What rules the learner looks for: of others it knows nothing."""

    columns: Mapping[str, bool]
    """Whether each can be put in order."""
    max_predicates: int

    def has(self, rule: Rule) -> bool:
        """Whether a rule would have been found, if it held."""
        return len(rule.predicates) <= self.max_predicates and all(map(self._makes, rule.predicates))

    def _makes(self, predicate: Predicate) -> bool:
        left, right = predicate.left, predicate.right
        if not isinstance(left, Column) or not isinstance(right, Column):
            return False
        # Which different columns are compared depends on the values that they share: they may not be.
        same = left.name == right.name and left.row != right.row and left.name in self.columns
        return same and (self.columns[left.name] or not predicate.op.is_order)


@dataclass(frozen=True)
class Proposal:
    """A rule that holds and is not in force."""

    held: Held
    score: float

    def to_json(self) -> dict[str, Any]:
        """For a program."""
        one = self.held
        return {
            "name": one.name,
            "fingerprint": one.fingerprint,
            "deny": one.deny,
            "words": one.words,
            "score": round(self.score, 4),
            "support": one.support,
            "since": vars(one.since),
        }


@dataclass(frozen=True)
class Broken:
    """A rule in force that no longer holds."""

    rule: Rule
    why: Ceased | None
    """When the learner saw it cease to hold, if it did, with the pair of rows that is the reason."""
    left: tuple[Held, ...]
    """Rules that hold and say a part of it: what it might be refined to."""

    def to_json(self) -> dict[str, Any]:
        """For a program."""
        from weever_stream.rules.writing import write_rule

        why = self.why
        return {
            "name": self.rule.name,
            "fingerprint": self.rule.fingerprint,
            "deny": write_rule(self.rule),
            "since": vars(why.at) if why else None,
            "left_key": why.left_key if why else None,
            "right_key": why.right_key if why else None,
            "left_values": why.left_values if why else None,
            "right_values": why.right_values if why else None,
            "refined": [one.name for one in self.left],
        }


def proposed(holding: Holding, rules: Sequence[Rule], known: Known, rejected: Collection[str] = ()) -> list[Proposal]:
    """The rules to adopt, best first: they hold, are not in force, follow from none in force, and nobody said no."""
    held = [parse_rule(one.deny, name=one.name) for one in holding.rules]
    boxes = _boxes(held)
    # What follows from a rule in force that is broken itself is worth a look: it is what remains of it.
    sound = _boxes(rule for rule in rules if not known.has(rule) or _covered(_box(rule.predicates), boxes))
    there = {rule.fingerprint for rule in rules}
    found = [
        Proposal(one, shape(rule) if one.score is None else one.score)
        for one, rule in zip(holding.rules, held, strict=True)
        if one.fingerprint not in there
        and one.fingerprint not in rejected
        and not _covered(_box(rule.predicates), sound)
    ]
    return sorted(found, key=lambda one: (-one.score, one.held.since.batch, one.held.name))


def broken(holding: Holding, rules: Sequence[Rule], known: Known) -> list[Broken]:
    """The rules in force that would have been found if they held, and were not."""
    held = [parse_rule(one.deny, name=one.name) for one in holding.rules]
    boxes = _boxes(held)
    why = {one.fingerprint: one for one in holding.ceased}
    found = []
    for rule in rules:
        if known.has(rule) and not _covered(_box(rule.predicates), boxes):
            mine = _boxes([rule])
            left = [one for one, it in zip(holding.rules, held, strict=True) if _covered(_box(it.predicates), mine)]
            found.append(Broken(rule, why.get(rule.fingerprint), tuple(left)))
    return found


def follows(rule: Rule, rules: Iterable[Rule]) -> bool:
    """Whether no pair of rows can break a rule without breaking one of others."""
    return _covered(_box(rule.predicates), _boxes(rules))


def shape(rule: Rule) -> float:
    """A score for a rule of which only the text is known: short ones first, orders and different columns behind."""
    orders = sum(predicate.op.is_order for predicate in rule.predicates)
    crossed = sum(len({column.name for column in predicate.columns}) > 1 for predicate in rule.predicates)
    symbols = 2 + len(rule.columns) + len({predicate.op for predicate in rule.predicates})
    return 0.4 * min(1.0, 4 / symbols) - 0.04 * len(rule.predicates) - 0.05 * orders - 0.12 * crossed


def _box(predicates: Iterable[Predicate]) -> _Box:
    return {(one.left, one.right): one.op.value for one in predicates}


def _boxes(rules: Iterable[Rule]) -> list[_Box]:
    """The boxes of rules, both ways round."""
    found = []
    for rule in rules:
        found.append(_box(rule.predicates))
        if not rule.symmetric and not rule.one_row:
            found.append(_box(exchanged(rule.predicates)))
    return found


def _covered(box: _Box, boxes: Sequence[_Box]) -> bool:
    """Whether a box lies in the union of others."""
    near = [one for one in boxes if _meets(box, one)]
    parts, looked = [box], 0
    while parts:
        part, looked = parts.pop(), looked + 1
        misses = [missed for one in near if _meets(part, one) if (missed := _misses(part, one)) is not None]
        if not misses or looked > _PARTS:
            return False
        fewest = min(misses, key=len)
        if fewest:
            at, inside = next(iter(fewest.items()))
            parts += [{**part, at: part[at] & ~inside}, {**part, at: part[at] & inside}]
    return True


def _meets(box: _Box, other: _Box) -> bool:
    return all(box.get(at, _ANYTHING) & outcomes for at, outcomes in other.items())


def _misses(box: _Box, other: _Box) -> _Box | None:
    """Where a box reaches beyond another, with what that has there; None where it cannot be split so."""
    beyond = {at: outcomes for at, outcomes in other.items() if box.get(at, _ANYTHING) & ~outcomes}
    return None if any(box.get(at, _ANYTHING) & _NO_OUTCOME for at in beyond) else beyond
