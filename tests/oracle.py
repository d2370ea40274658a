"""The truth by nested loops: the violations of rules over a table, in plain Python and nothing of the engine.

    violations(rules, rows, key="id")  ->  {(rule name, left key, right key), …}

Rows are dicts of Python values, one a key. What holds (docs/rules.md): a comparison with null is never satisfied;
NaN equals NaN and is greater than every number; -0.0 equals 0.0; text compares by its UTF-8 bytes; whole numbers and
decimals exactly, and with a float as doubles; timestamps as instants; a date with a zoneless timestamp as its midnight.
A row never pairs with itself. A rule that reads the same with t and s exchanged has its pairs once, the smaller key on
the left. A rule that names t alone has violations of one row, whose right key is None.

Cost: the square of the number of different rows (those with the same values in a rule's columns are looked at once).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime, timezone
from typing import Any

from weever_stream.rules import Column, Constant, Op, Predicate, Rule

__all__ = ["compare", "compare_keys", "key_of", "satisfies", "violations"]

Violation = tuple[str, Any, Any]
_OUTCOMES = {Op.LT: {-1}, Op.LE: {-1, 0}, Op.EQ: {0}, Op.NE: {-1, 1}, Op.GE: {0, 1}, Op.GT: {1}}
_MIRRORED = {Op.LT: Op.GT, Op.LE: Op.GE, Op.EQ: Op.EQ, Op.NE: Op.NE, Op.GE: Op.LE, Op.GT: Op.LT}


def compare(left: Any, right: Any) -> int:
    """-1, 0 or 1: how two values that are not null stand to each other."""
    return _order(_plain(left), _plain(right))


def satisfies(left: Any, op: Op, right: Any) -> bool:
    """Whether `left op right`. Null satisfies nothing."""
    return left is not None and right is not None and compare(left, right) in _OUTCOMES[op]


def key_of(row: Mapping[str, Any], key: str | Sequence[str]) -> Any:
    """The key of a row: a value, or a tuple of values for several columns."""
    if isinstance(key, str):
        return row[key]
    return row[key[0]] if len(key) == 1 else tuple(row[name] for name in key)


def compare_keys(left: Any, right: Any) -> int:
    """-1, 0 or 1: how two keys stand to each other, column by column."""
    if not isinstance(left, tuple):
        return compare(left, right)
    return next((outcome for one, other in zip(left, right, strict=True) if (outcome := compare(one, other))), 0)


def violations(
    rules: Iterable[Rule],
    rows: Iterable[Mapping[str, Any]],
    key: str | Sequence[str] | None = None,
    touching: set[Any] | None = None,
) -> set[Violation]:
    """All violations of the rules, or only those in which some of the given keys stand.

    Without a key rows are numbered from 1.
    """
    named = [(number if key is None else key_of(row, key), row) for number, row in enumerate(rows, 1)]
    return {found for rule in rules for found in _of_rule(rule, named, touching)}


def _plain(value: Any) -> Any:
    """A value whose own Python order and equality are the right ones, floats aside."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, datetime):
        # Python compares two times of one zone by the wall clock, and so would mix up the hours of a clock change.
        return value if value.tzinfo is None else value.astimezone(timezone.utc)
    if isinstance(value, date):
        return datetime(value.year, value.month, value.day)
    return value


def _order(left: Any, right: Any) -> int:
    if isinstance(left, float) or isinstance(right, float):
        left, right = float(left), float(right)
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) - math.isnan(right)
    return (left > right) - (left < right)


def _of_rule(rule: Rule, named: list[tuple[Any, Mapping[str, Any]]], touching: set[Any] | None) -> Iterable[Violation]:
    columns = sorted({column.name for predicate in rule.predicates for column in predicate.columns})
    alike: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
    for name, row in named:
        alike[tuple([_plain(row[column]) for column in columns])].append(name)
    groups = list(alike.items())
    touched = [group for group in groups if touching is None or not touching.isdisjoint(group[1])]
    denied = _denied(rule, columns)
    if all(predicate.rows == {"t"} for predicate in rule.predicates):
        for t, names in touched:
            if denied(t, t):
                yield from ((rule.name, name, None) for name in names if touching is None or name in touching)
        return
    once = _reads_the_same_exchanged(rule)
    looked_at = {t for t, _ in touched}
    for t, lefts in groups:
        for s, rights in groups if t in looked_at else touched:
            if denied(t, s):
                for left in lefts:
                    for right in rights:
                        if touching is None or left in touching or right in touching:
                            order = compare_keys(left, right)
                            if order < 0 or (order > 0 and not once):
                                yield rule.name, left, right


def _denied(rule: Rule, columns: list[str]) -> Callable[[tuple[Any, ...], tuple[Any, ...]], bool]:
    """Whether two rows, given as the values of some columns, satisfy all predicates of a rule."""

    def reader(operand: Column | Constant) -> Callable[[tuple[Any, ...], tuple[Any, ...]], Any]:
        if isinstance(operand, Constant):
            constant = _plain(operand.value)
            return lambda t, s: constant
        at = columns.index(operand.name)
        return (lambda t, s: t[at]) if operand.row == "t" else (lambda t, s: s[at])

    predicates = [(reader(p.left), _OUTCOMES[p.op], reader(p.right)) for p in rule.predicates]

    def all_hold(t: tuple[Any, ...], s: tuple[Any, ...]) -> bool:
        for left, outcomes, right in predicates:
            one, other = left(t, s), right(t, s)
            if one is None or other is None or _order(one, other) not in outcomes:
                return False
        return True

    return all_hold


def _reads_the_same_exchanged(rule: Rule) -> bool:
    return {_spelling(p, "t", "s") for p in rule.predicates} == {_spelling(p, "s", "t") for p in rule.predicates}


def _spelling(predicate: Predicate, t: str, s: str) -> frozenset[str]:
    """A predicate and its mirror image, with other names for the rows."""
    left, right = (
        f"{t if side.row == 't' else s}.{side.name!r}" if isinstance(side, Column) else repr(side)
        for side in (predicate.left, predicate.right)
    )
    return frozenset({f"{left} {predicate.op} {right}", f"{right} {_MIRRORED[predicate.op]} {left}"})
