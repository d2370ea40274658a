"""The truth by nested loops: the violations of rules over a table, in plain Python and nothing of the engine.

    violations([written("t.a = s.a", "same_a")], rows, key="id")  ->  {(rule name, left key, right key), …}

Rules are taken as they were written: a mistake in the normal form, or in what becomes of it when types are known, must
not reach the truth. Of the package only the parser is used. Rows are dicts of Python values, one a key. What holds (docs/rules.md): a comparison with null is never satisfied;
NaN equals NaN and is greater than every number; -0.0 equals 0.0; text compares by its UTF-8 bytes; whole numbers and
decimals exactly, and with a float as doubles; timestamps as instants; a date with a zoneless timestamp as its midnight.
A row never pairs with itself. A rule that reads the same with t and s exchanged has its pairs once, the smaller key on
the left. A rule that names t alone has violations of one row, whose right key is None.

Text that meets a date or a timestamp is one, as in `t.day > '2024-01-31'`.

Cost: the square of the number of different rows (those with the same values in a rule's columns are looked at once).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime, time, timezone
from typing import Any, NamedTuple

import yaml

from weever_stream.rules import Column, Constant, Op, Predicate
from weever_stream.rules.notations import read_notation
from weever_stream.rules.parse import parse_filter
from weever_stream.rules.source import Source

__all__ = [
    "Written",
    "compare",
    "compare_keys",
    "is_symmetric",
    "key_of",
    "satisfies",
    "violations",
    "written",
    "written_file",
]

Violation = tuple[str, Any, Any]
_OUTCOMES = {Op.LT: {-1}, Op.LE: {-1, 0}, Op.EQ: {0}, Op.NE: {-1, 1}, Op.GE: {0, 1}, Op.GT: {1}}
_MIRRORED = {Op.LT: Op.GT, Op.LE: Op.GE, Op.EQ: Op.EQ, Op.NE: Op.NE, Op.GE: Op.LE, Op.GT: Op.LT}


class Written(NamedTuple):
    """A rule as it was written: its predicates in any order and direction, repeated ones too."""

    name: str
    predicates: tuple[Predicate, ...]

    @property
    def one_row(self) -> bool:
        """Whether it names one row only, whichever: its violations are single rows."""
        return len({column.row for predicate in self.predicates for column in predicate.columns}) == 1


def written(text: str, name: str = "unnamed", filter: str | None = None) -> Written:
    """A rule from its text, and from that of a filter on each of its rows."""
    denied = read_notation(Source.inline(text))
    rows = {column.row for predicate in denied for column in predicate.columns}
    passing = parse_filter(Source.inline(filter)) if filter else []
    return Written(name, (*denied, *(_on_row(predicate, row) for row in rows for predicate in passing)))


def written_file(text: str) -> list[Written]:
    """The rules of a rule file. Lists of columns are written as `a, b -> c, d` or as YAML lists."""
    return [rule for item in yaml.safe_load(text)["rules"] for rule in _of_item(item)]


def _of_item(item: Mapping[str, Any]) -> list[Written]:
    name, filter = item["name"], item.get("filter")
    if "deny" in item:
        return [written(item["deny"], name, filter)]
    if "unique" in item:
        return [
            written(" and ".join(f't."{column}" = s."{column}"' for column in _names(item["unique"])), name, filter)
        ]
    if "fd" in item:
        before, after = item["fd"].split("->")
        same, last = _names(before), "t.{0} != s.{0}"
    else:
        by, after = item["order"].split("->")
        after, _, within = after.partition(" within ")
        same, last = _names(within), f"t.{by} < s.{by} and t.{{0}} > s.{{0}}"
    made = []
    for column in _names(after):
        text = " and ".join([*(f"t.{one} = s.{one}" for one in same), last.format(column)])
        made.append(written(text, name if len(_names(after)) == 1 else f"{name}.{column}", filter))
    return made


def _names(columns: str | Sequence[str]) -> list[str]:
    return [name.strip() for name in columns.split(",") if name.strip()] if isinstance(columns, str) else list(columns)


def _on_row(predicate: Predicate, row: Any) -> Predicate:
    left, right = (
        Column(row, side.name) if isinstance(side, Column) else side for side in (predicate.left, predicate.right)
    )
    return replace(predicate, left=left, right=right)


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
    rules: Iterable[Written],
    rows: Iterable[Mapping[str, Any]],
    key: str | Sequence[str] | None = None,
    touching: set[Any] | None = None,
) -> set[Violation]:
    """All violations of the rules, or only those in which some of the given keys stand.

    Without a key rows are numbered from 1.
    """
    rules = list(rules)
    assert all(type(rule) is Written for rule in rules), "the truth comes from rules as they were written"
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
    if isinstance(left, bytes) and isinstance(right, (datetime, time)):
        left = _moment(left, right)
    elif isinstance(right, bytes) and isinstance(left, (datetime, time)):
        right = _moment(right, left)
    if isinstance(left, float) or isinstance(right, float):
        left, right = float(left), float(right)
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) - math.isnan(right)
    return (left > right) - (left < right)


def _moment(text: bytes, other: datetime | time) -> datetime | time:
    if isinstance(other, time):
        return time.fromisoformat(text.decode())
    moment = datetime.fromisoformat(text.decode())
    return moment if other.tzinfo is None else moment.astimezone(timezone.utc)


def _of_rule(
    rule: Written, named: list[tuple[Any, Mapping[str, Any]]], touching: set[Any] | None
) -> Iterable[Violation]:
    columns = sorted({column.name for predicate in rule.predicates for column in predicate.columns})
    alike: dict[tuple[Any, ...], list[Any]] = defaultdict(list)
    for name, row in named:
        alike[tuple([_plain(row[column]) for column in columns])].append(name)
    groups = list(alike.items())
    touched = [group for group in groups if touching is None or not touching.isdisjoint(group[1])]
    denied = _denied(rule, columns)
    if rule.one_row:
        for t, names in touched:
            if denied(t, t):
                yield from ((rule.name, name, None) for name in names if touching is None or name in touching)
        return
    once = is_symmetric(rule)
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


def _denied(rule: Written, columns: list[str]) -> Callable[[tuple[Any, ...], tuple[Any, ...]], bool]:
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


def is_symmetric(rule: Written) -> bool:
    """Whether it reads the same with t and s exchanged, comparisons of the same operands taken together."""
    return not rule.one_row and _outcomes(rule, "t", "s") == _outcomes(rule, "s", "t")


def _outcomes(rule: Written, t: str, s: str) -> dict[tuple[str, str], set[int]]:
    """For each two operands the outcomes that all comparisons of them allow, with other names for the rows."""
    allowed: dict[tuple[str, str], set[int]] = {}
    for predicate in rule.predicates:
        left, right = (
            f"{t if side.row == 't' else s}.{side.name!r}" if isinstance(side, Column) else repr(side)
            for side in (predicate.left, predicate.right)
        )
        op = predicate.op if left < right else _MIRRORED[predicate.op]
        operands = min((left, right), (right, left))
        allowed[operands] = allowed.get(operands, {-1, 0, 1}) & _OUTCOMES[op]
    return allowed
