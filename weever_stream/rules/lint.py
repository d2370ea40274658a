"""What only shows when the rules of a file are seen together: repeated rules, and rules that cannot be violated.

Repeats are errors, and name both places. A rule that demands equality on the whole key is no error, since it states
the key itself, but no two rows of the table can ever violate it: a note says so. Cost: linear in the rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from weever_stream.errors import RuleError
from weever_stream.rules.model import Column, Op

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weever_stream.rules.model import Rule

__all__ = ["notes_on", "repeats"]


def repeats(rules: Iterable[Rule]) -> list[RuleError]:
    """An error for every rule whose name or whose meaning an earlier rule already has."""
    by_name: dict[str, Rule] = {}
    by_meaning: dict[str, Rule] = {}
    errors = []
    for rule in rules:
        namesake = by_name.setdefault(rule.name, rule)
        same = by_meaning.setdefault(rule.fingerprint, rule)
        if namesake is not rule:
            errors.append(_repeat("another rule has this name", rule, namesake, "give each rule a name of its own"))
        elif same is not rule:
            errors.append(_repeat(f"the rule says the same as {same.name}", rule, same, "keep one of the two"))
    return errors


def _repeat(message: str, rule: Rule, earlier: Rule, hint: str) -> RuleError:
    where = f" (line {earlier.place.line})" if earlier.place and earlier.place.line else ""
    return RuleError(message + where, place=rule.place, hint=hint).at(rule=rule.name)


def notes_on(rules: Iterable[Rule], key: Sequence[str]) -> tuple[str, ...]:
    """What is worth a look in the rules of a table with that key."""
    if not key:
        return ()
    return tuple(
        f"rule {rule.name} can never be violated: rows that agree on the key ({', '.join(key)}) are one row"
        for rule in rules
        if set(key) <= _equal_columns(rule)
    )


def _equal_columns(rule: Rule) -> set[str]:
    """The columns that t and s must agree on."""
    return {
        predicate.left.name
        for predicate in rule.predicates
        if predicate.op is Op.EQ
        and isinstance(predicate.left, Column)
        and isinstance(predicate.right, Column)
        and predicate.left.name == predicate.right.name
        and predicate.left.row != predicate.right.row
    }
