"""Rules made in Python: from an expression in any notation, and from the sugar for keys, dependencies and orders.

    parse_rule("t.zip = s.zip and t.city != s.city", name="zip_determines_city")
    unique(["order_id"]), fd("zip", "city"), order("salary", "rate", within=["state"])

A sugar with several columns on its right gives one rule for each, named `<name>.<column>`, so that a violation says
which column it is about.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from weever_stream.errors import RuleError
from weever_stream.rules.canonical import make_rule
from weever_stream.rules.model import SEVERITIES, Column, Op, Predicate, RowName, Rule
from weever_stream.rules.notations import read_notation
from weever_stream.rules.parse import parse_filter
from weever_stream.rules.source import Source

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weever_stream.errors import Place
    from weever_stream.rules.model import Severity

__all__ = ["About", "NamedPlace", "expand_fd", "expand_order", "expand_unique", "fd", "order", "parse_rule", "unique"]


@dataclass(frozen=True)
class NamedPlace:
    """A column name and where it was written."""

    name: str
    place: Place | None = None


@dataclass(frozen=True)
class About:
    """What a rule says of itself, besides what it denies."""

    name: str
    severity: Severity = "error"
    filter: Source | None = None
    description: str | None = None
    owner: str | None = None
    metadata: Mapping[str, object] | None = None
    place: Place | None = None

    def rule(self, predicates: Iterable[Predicate]) -> Rule:
        """The rule that denies these predicates to rows that pass the filter."""
        if self.severity not in SEVERITIES:
            raise RuleError(f"{self.severity!r} is not a severity", hint="one of " + ", ".join(SEVERITIES))
        denied = list(predicates)
        return make_rule(
            self.name,
            denied + self._filtered(denied),
            severity=self.severity,
            description=self.description,
            owner=self.owner,
            metadata=self.metadata,
            place=self.place,
        )

    def for_column(self, column: str, alone: bool) -> About:
        """For one of several columns: named after it."""
        return self if alone else replace(self, name=f"{self.name}.{column}")

    def _filtered(self, denied: list[Predicate]) -> list[Predicate]:
        """The filter's predicates, for each row that the rule names."""
        if self.filter is None:
            return []
        passing = parse_filter(self.filter)
        rows = {column.row: None for predicate in denied for column in predicate.columns}
        return [_on_row(predicate, row) for row in rows for predicate in passing]


def _on_row(predicate: Predicate, row: RowName) -> Predicate:
    left, right = (
        Column(row, side.name) if isinstance(side, Column) else side for side in (predicate.left, predicate.right)
    )
    return replace(predicate, left=left, right=right)


def parse_rule(
    text: str,
    *,
    name: str = "unnamed",
    severity: Severity = "error",
    filter: str | None = None,
    description: str | None = None,
    owner: str | None = None,
    metadata: Mapping[str, object] | None = None,
) -> Rule:
    """The rule that an expression denies, in our notation or any other that `notations` reads.

    >>> parse_rule("s.city <> t.city and t.zip = s.zip").predicates[0].left
    Column(row='t', name='zip')
    """
    return _about(name, severity, filter, description, owner, metadata).rule(read_notation(Source.inline(text, name)))


def unique(
    columns: str | Sequence[str],
    *,
    name: str = "unique",
    severity: Severity = "error",
    filter: str | None = None,
    description: str | None = None,
) -> Rule:
    """No two rows agree on all these columns."""
    about = _about(name, severity, filter, description)
    return expand_unique(_named(columns), about)[0]


def fd(
    determinants: str | Sequence[str],
    dependents: str | Sequence[str],
    *,
    name: str = "fd",
    severity: Severity = "error",
    filter: str | None = None,
    description: str | None = None,
) -> tuple[Rule, ...]:
    """Rows that agree on the determinants agree on each dependent: one rule for each dependent."""
    about = _about(name, severity, filter, description)
    return expand_fd(_named(determinants), _named(dependents), about)


def order(
    by: str,
    of: str | Sequence[str],
    *,
    within: str | Sequence[str] = (),
    name: str = "order",
    severity: Severity = "error",
    filter: str | None = None,
    description: str | None = None,
) -> tuple[Rule, ...]:
    """As `by` rises, `of` must not fall, among rows that agree on `within`: one rule for each column of `of`."""
    about = _about(name, severity, filter, description)
    return expand_order(_named(by), _named(of), _named(within), about)


def expand_unique(columns: Sequence[NamedPlace], about: About) -> tuple[Rule, ...]:
    """The one rule of `unique`."""
    _refuse_repeats(columns)
    return (about.rule([_pair(column, Op.EQ) for column in columns]),)


def expand_fd(determinants: Sequence[NamedPlace], dependents: Sequence[NamedPlace], about: About) -> tuple[Rule, ...]:
    """The rules of `fd`."""
    _refuse_repeats([*determinants, *dependents])
    equal = [_pair(column, Op.EQ) for column in determinants]
    return tuple(
        about.for_column(column.name, len(dependents) == 1).rule([*equal, _pair(column, Op.NE)])
        for column in dependents
    )


def expand_order(
    by: Sequence[NamedPlace], of: Sequence[NamedPlace], within: Sequence[NamedPlace], about: About
) -> tuple[Rule, ...]:
    """The rules of `order`."""
    if len(by) != 1:
        raise RuleError("an order rises by one column", place=by[1].place if by else None)
    _refuse_repeats([*by, *of, *within])
    same = [_pair(column, Op.EQ) for column in within]
    return tuple(
        about.for_column(column.name, len(of) == 1).rule([*same, _pair(by[0], Op.LT), _pair(column, Op.GT)])
        for column in of
    )


def _pair(column: NamedPlace, op: Op) -> Predicate:
    return Predicate(Column("t", column.name), op, Column("s", column.name), column.place)


def _refuse_repeats(columns: Sequence[NamedPlace]) -> None:
    seen: set[str] = set()
    for column in columns:
        if column.name in seen:
            raise RuleError(f"column {column.name} is named twice", place=column.place, hint="name it once")
        seen.add(column.name)
    if not columns:
        raise RuleError("no column is named")


def _named(columns: str | Sequence[str]) -> list[NamedPlace]:
    return [NamedPlace(name) for name in ([columns] if isinstance(columns, str) else columns)]


def _about(
    name: str,
    severity: Severity,
    filter: str | None,
    description: str | None,
    owner: str | None = None,
    metadata: Mapping[str, object] | None = None,
) -> About:
    source = None if filter is None else Source.inline(filter, name)
    return About(name, severity, source, description, owner, metadata)
