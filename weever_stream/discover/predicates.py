"""The predicate space: every comparison that a rule to be found may make, numbered.

A *comparison* is a pair of operands (`t.A` with `s.B`, or two columns of one row) together with the operators it may
take: all six where the values have an order that means something (numbers, dates, times), `=` and `!=` for text and
booleans, unless order of text is asked for. A predicate is a comparison with one of its operators; its number is its
place in every set of predicates. Two columns meet where their types match and enough values are shared.

A pair of rows has one *outcome* for each comparison: less, equal, greater, or none of them, because a value is null and
then no operator is satisfied. Cost: one pass a column, and one count of shared values for each two columns of a type.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from weever_stream.check.exact import ExactCodes
from weever_stream.check.keys import ranks
from weever_stream.discover.budget import Budget
from weever_stream.index.codes import coding
from weever_stream.rules import Column, ColumnType, Op, Predicate, bind, common_type, make_rule, schema_of

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from weever_stream.index.arrays import Ints
    from weever_stream.rules import BoundRule
    from weever_stream.rules.types import Schema

__all__ = [
    "ACROSS",
    "EQUAL",
    "GREATER",
    "LEFT",
    "LESS",
    "NOTHING",
    "RIGHT",
    "Comparison",
    "Options",
    "Space",
    "comparisons_in",
    "comparisons_of",
    "may_meet",
    "space_of",
    "space_over",
    "usable",
]

NOTHING, LESS, EQUAL, GREATER = 0, 1, 2, 3
"""Outcomes of a comparison. Without an order every difference counts as LESS."""
ACROSS, LEFT, RIGHT = 0, 1, 2
"""Where a comparison's operands stand: one on each row, both on t, both on s."""
_ORDERED = (Op.LT, Op.LE, Op.EQ, Op.GE, Op.GT, Op.NE)
_UNORDERED = (Op.EQ, Op.NE)
_DIGITS = 76
"""Digits that rules can compare."""


@dataclass(frozen=True)
class Options:
    """What a space holds besides the comparisons of each column with itself."""

    columns: tuple[str, ...] | None = None
    """Only these; None: all."""
    order_text: bool = False
    cross: bool = True
    shared: float = 0.3
    """The share of values that two columns must have in common to be compared with each other."""
    one_row: bool = False
    """Whether two columns of one row are compared too."""


@dataclass(frozen=True)
class Comparison:
    """Two operands, the operators between them, and the type in which they are compared."""

    left: Column
    right: Column
    ops: tuple[Op, ...]
    domain: ColumnType

    @property
    def where(self) -> int:
        """`ACROSS`, `LEFT` or `RIGHT`."""
        if self.left.row != self.right.row:
            return ACROSS
        return LEFT if self.left.row == "t" else RIGHT

    @property
    def ordered(self) -> bool:
        """Whether it can tell less from greater."""
        return self.ops is _ORDERED or len(self.ops) > len(_UNORDERED)


@dataclass(frozen=True)
class Space:
    """Comparisons and predicates of one table, with the codes that tell the outcomes."""

    comparisons: tuple[Comparison, ...]
    codes: NDArray[np.int32]
    """One row for each (column, type): dense ranks that compare as the values do; -1 for null."""
    programs: NDArray[np.int32]
    """For each comparison: its left row of codes, its right row, where it stands, whether it is ordered."""
    exact: ExactCodes
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Columns that take no part, and why."""
    unmet: int = 0
    """Pairs of columns that could have been compared with each other, had there been time and room."""

    @property
    def rows(self) -> int:
        """Rows of the table."""
        return int(self.exact.table.num_rows)

    @cached_property
    def predicates(self) -> tuple[Predicate, ...]:
        """All predicates; the place of each is its number."""
        return tuple(Predicate(one.left, op, one.right) for one in self.comparisons for op in one.ops)

    @cached_property
    def comparison_of(self) -> Ints:
        """The comparison that each predicate makes."""
        return np.repeat(np.arange(len(self.comparisons)), [len(one.ops) for one in self.comparisons])

    @cached_property
    def ops(self) -> Ints:
        """The operator of each predicate, as its bits."""
        return np.array([predicate.op.value for predicate in self.predicates], np.int64)

    @cached_property
    def number(self) -> dict[tuple[Column, Op, Column], int]:
        """The number of each predicate, by its parts."""
        return {(p.left, p.op, p.right): at for at, p in enumerate(self.predicates)}  # type: ignore[misc]

    @cached_property
    def exchanged(self) -> Ints:
        """For each predicate the one that says the same with t and s exchanged."""
        return np.array([self.number[_exchanged(predicate)] for predicate in self.predicates], np.int64)

    @cached_property
    def turned(self) -> Ints:
        """For each comparison the one that it becomes when t and s are exchanged."""
        first = np.searchsorted(self.comparison_of, np.arange(len(self.comparisons)))
        return self.comparison_of[self.exchanged[first]] if len(first) else first

    @cached_property
    def flips(self) -> NDArray[np.bool_]:
        """Whether a comparison's outcome is mirrored in the one it becomes: `t.A < s.A` turns to `t.A > s.A`."""
        return np.array([one.where == ACROSS and one.ordered for one in self.comparisons], np.bool_)

    def satisfied(self, outcomes: NDArray[np.uint8]) -> NDArray[np.bool_]:
        """Which predicates (columns) hold for some outcomes of all comparisons (rows)."""
        held = np.empty((len(self.predicates), len(outcomes)), np.bool_)
        columns = np.ascontiguousarray(outcomes.T)
        for number, (at, op) in enumerate(zip(self.comparison_of, self.ops, strict=True)):
            told = np.array([False, op & 1, op & 2, op & 4], np.bool_)
            np.take(told, columns[at], out=held[number])
        return held.T

    def rule(self, numbers: Iterable[int], name: str = "found", description: str | None = None) -> BoundRule:
        """The rule that denies some predicates together, ready to be counted."""
        made = make_rule(name, [self.predicates[at] for at in numbers], description=description)
        return bind(made, schema_of(self.exact.table.schema))


def _exchanged(predicate: Predicate) -> tuple[Column, Op, Column]:
    """The parts of a predicate with t and s exchanged, as the space writes them: t on the left across rows."""
    left, right = predicate.left, predicate.right
    assert isinstance(left, Column)
    assert isinstance(right, Column)
    if left.row != right.row:
        return Column("t", right.name), predicate.op.flipped(), Column("s", left.name)
    other = "s" if left.row == "t" else "t"
    return Column(other, left.name), predicate.op, Column(other, right.name)  # type: ignore[arg-type]


def space_of(table: pa.Table, options: Options = Options(), budget: Budget | None = None) -> Space:
    """The space of a table. A budget limits how many columns are compared with each other: those that share most."""
    types, comparisons, skipped, unmet = comparisons_in(table, options, budget)
    return replace(space_over(table.select(list(types)), comparisons, skipped), unmet=unmet)


def comparisons_in(
    table: pa.Table, options: Options, budget: Budget | None = None
) -> tuple[dict[str, ColumnType], list[Comparison], dict[str, str], int]:
    """The columns of a table that can be compared, its comparisons, why columns are left out, and pairs not met."""
    types, skipped = _usable(table, options)
    met: list[tuple[str, str, ColumnType]] = []
    unmet = 0
    if (options.cross or options.one_row) and table.num_rows > 1:
        met, unmet = _meeting(table, types, options, budget or Budget(None))
    return types, comparisons_of(types, met, options), skipped, unmet


def space_over(
    table: pa.Table, comparisons: Sequence[Comparison], skipped: Mapping[str, str] = MappingProxyType({})
) -> Space:
    """The space of some comparisons over a table, or over a part of one: pairs have the same outcomes in both."""
    exact = _codes(table, comparisons)
    codes, programs = _ranked(exact, comparisons)
    return Space(tuple(comparisons), codes, programs, exact, skipped)


def comparisons_of(
    types: Mapping[str, ColumnType], met: Iterable[tuple[str, str, ColumnType]], options: Options
) -> list[Comparison]:
    """All comparisons of columns with themselves, and of those that meet, in the type in which they do."""
    comparisons = [
        Comparison(Column("t", name), Column("s", name), _ops(kind, options), kind) for name, kind in types.items()
    ]
    for one, other, domain in met:
        ops = _ops(domain, options)
        if options.cross:
            comparisons.append(Comparison(Column("t", one), Column("s", other), ops, domain))
            comparisons.append(Comparison(Column("t", other), Column("s", one), ops, domain))
        if options.one_row:
            comparisons.append(Comparison(Column("t", one), Column("t", other), ops, domain))
            comparisons.append(Comparison(Column("s", one), Column("s", other), ops, domain))
    return comparisons


def _usable(table: pa.Table, options: Options) -> tuple[dict[str, ColumnType], dict[str, str]]:
    """The columns that can be compared with their types, and why others are left out."""
    empty = {name for name in table.column_names if table[name].null_count == table.num_rows}
    empty |= {one.name for one in table.schema if pa.types.is_null(one.type)}
    return usable(schema_of(table.schema), empty, options)


def usable(schema: Schema, empty: Container[str], options: Options) -> tuple[dict[str, ColumnType], dict[str, str]]:
    """Of columns of which some are `empty` those that can be compared, with their types; and why others cannot."""
    types: dict[str, ColumnType] = {}
    skipped: dict[str, str] = {}
    for name, kind in schema.items():
        if options.columns is not None and name not in options.columns:
            continue
        if name in empty or (isinstance(kind, ColumnType) and kind.kind == "null"):
            skipped[name] = "it has no value"
        elif isinstance(kind, str):
            skipped[name] = f"values of type {kind} cannot be compared"
        else:
            types[name] = kind
    return types, skipped


def _ops(domain: ColumnType, options: Options) -> tuple[Op, ...]:
    if domain.kind == "boolean" or (domain.kind == "string" and not options.order_text):
        return _UNORDERED
    return _ORDERED


def may_meet(types: Mapping[str, ColumnType]) -> list[tuple[str, str, ColumnType]]:
    """The columns whose types match, two by two, and the type in which they are compared."""
    names, possible = list(types), []
    for at, one in enumerate(names):
        for other in names[at + 1 :]:
            domain = common_type(types[one], types[other])
            if domain is not None and domain.precision <= _DIGITS and _alike(types[one], types[other]):
                possible.append((one, other, domain))
    return possible


def _meeting(
    table: pa.Table, types: Mapping[str, ColumnType], options: Options, budget: Budget
) -> tuple[list[tuple[str, str, ColumnType]], int]:
    """The columns that share enough values to be compared with each other, and the type in which they are.

    Also how many pairs of columns there was no time to look at, or no room for.
    """
    possible = may_meet(types)
    room = budget.comparisons() // (2 * options.cross + 2 * options.one_row)
    if not possible or options.shared <= 0:
        return possible[:room], len(possible[room:])
    exact = _codes(
        table, [Comparison(Column("t", one), Column("s", other), _UNORDERED, domain) for one, other, domain in possible]
    )
    looking = budget.share(0.1)
    counted: dict[tuple[str, ColumnType], tuple[Ints, Ints]] = {}

    def values(name: str, domain: ColumnType) -> tuple[Ints, Ints]:
        if (name, domain) not in counted:
            found = exact.of(name, domain)
            present = found.values if found.valid is None else found.values[found.valid]
            counted[name, domain] = np.unique(present, return_counts=True)
        return counted[name, domain]

    shares: dict[int, float] = {}
    looked = 0
    for at, (one, other, domain) in enumerate(possible):
        looked = at + 1
        share = _share(values(one, domain), values(other, domain))
        if share >= options.shared:
            shares[at] = share
        if not looking.go_on():
            break
    # In the order of the table, of those that share most.
    best = sorted(sorted(shares, key=lambda at: -shares[at])[:room])
    return [possible[at] for at in best], len(possible) - looked + len(shares) - len(best)


def _alike(one: ColumnType, other: ColumnType) -> bool:
    """Whether values of two types are compared exactly: whole numbers and decimals, else only the same kind.

    A whole number and a float are compared as floats, which is not the order of the whole numbers among themselves.
    Two flags share their values by nature, and mean nothing to each other.
    """
    exact = {"integer", "uint64", "decimal"}
    return {one.kind, other.kind} <= exact or (one.kind == other.kind and one.kind != "boolean")


def _share(one: tuple[Ints, Ints], other: tuple[Ints, Ints]) -> float:
    """The share of values in common, as many times as they occur, of the column that has fewer."""
    if not len(one[0]) or not len(other[0]) or one[0][-1] < other[0][0] or other[0][-1] < one[0][0]:
        return 0.0
    _, ours, theirs = np.intersect1d(one[0], other[0], assume_unique=True, return_indices=True)
    common = int(np.minimum(one[1][ours], other[1][theirs]).sum())
    return common / max(1, min(int(one[1].sum()), int(other[1].sum())))


def _codes(table: pa.Table, comparisons: Sequence[Comparison]) -> ExactCodes:
    """Codes for all comparisons: `ExactCodes` learns from rules what must be comparable with what.

    Only texts and wide decimals need that. One rule that ties a column to those before it is enough: of hundreds of
    columns that may all meet there are too many pairs for a rule each.
    """
    schema = schema_of(table.schema)
    rules = []
    tied = _Tied()
    for one in comparisons:
        if one.where == ACROSS and not coding(one.domain, ordered=False).exact:
            kind = (one.domain.kind, one.domain.scale, one.ordered)
            if tied.together((one.left.name, kind), (one.right.name, kind)) or one.left.name == one.right.name:
                op = Op.LT if one.ordered else Op.EQ
                rules.append(bind(make_rule("space", [Predicate(one.left, op, one.right)]), schema))
    return ExactCodes(table, rules)


class _Tied:
    """Which things are tied together, by whatever chain."""

    def __init__(self) -> None:
        self._next: dict[object, object] = {}

    def _first(self, one: object) -> object:
        while (other := self._next.setdefault(one, one)) != one:
            self._next[one] = self._next[other]
            one = other
        return one

    def together(self, one: object, other: object) -> bool:
        """Ties two together; false if they already were."""
        one, other = self._first(one), self._first(other)
        self._next[one] = other
        return one != other


def _ranked(exact: ExactCodes, comparisons: Sequence[Comparison]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """The codes as dense ranks, columns that meet in one type ranked together, and the program over them."""
    together: dict[ColumnType, dict[str, None]] = {}
    for one in comparisons:
        if one.left.name != one.right.name:
            together.setdefault(one.domain, {}).update({one.left.name: None, one.right.name: None})
    rows: list[NDArray[np.int32]] = []
    place: dict[tuple[str, ColumnType], int] = {}
    for domain, names in together.items():
        _add(exact, domain, list(names), rows, place)
    for one in comparisons:
        if (one.left.name, one.domain) not in place:
            _add(exact, one.domain, [one.left.name], rows, place)
    programs = np.array(
        [(place[c.left.name, c.domain], place[c.right.name, c.domain], c.where, c.ordered) for c in comparisons],
        np.int32,
    ).reshape(-1, 4)
    codes = np.stack(rows) if rows else np.empty((0, exact.table.num_rows), np.int32)
    return codes, programs


def _add(
    exact: ExactCodes,
    domain: ColumnType,
    names: Sequence[str],
    rows: list[NDArray[np.int32]],
    place: dict[tuple[str, ColumnType], int],
) -> None:
    found = [exact.of(name, domain) for name in names]
    size = exact.table.num_rows
    rank = ranks(np.concatenate([one.values for one in found])).astype(np.int32)
    for at, (name, one) in enumerate(zip(names, found, strict=True)):
        mine = rank[at * size : (at + 1) * size].copy()
        if one.valid is not None:
            mine[~one.valid] = -1
        place[name, domain] = len(rows)
        rows.append(mine)
