"""From rules to what is stored and probed: families, sides, gates and programs.

Rules that compare the same columns for equality form a family and share storage and routing. A family has a left side
(its rows as t) and a right side (as s), one shared side where both read the same equality columns. A side is stored
only if something probes it: a symmetric rule probes once, from left to right. What one row must fulfil alone (filters,
columns that must not be null) becomes a gate: a bit stored with the row, tested like a column. A plan depends on the
rules and the schema only, never on the data.

In a capped plan rows have levels (see `flood`). A family then has further sides, for the pairs of flooded rows, and
programs that count all pairs of a rule, whatever the levels.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from weever_stream.detect.flood import calm, flood_fields, is_calm, is_mark, samples
from weever_stream.index.codes import Coding, coding
from weever_stream.index.probing import HALF, MAX_PROGRAMS, OTHERS
from weever_stream.index.tree import Programs
from weever_stream.rules.bind import TypedPredicate
from weever_stream.rules.model import Column, Op

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weever_stream.rules.bind import BoundRule
    from weever_stream.rules.types import ColumnType

__all__ = ["CodeColumn", "Family", "Gate", "Plan", "Probe", "Side", "Target", "plan"]


@dataclass(frozen=True)
class CodeColumn:
    """A column in one coding: what the index stores of it."""

    column: str
    coding: Coding


@dataclass(frozen=True)
class Gate:
    """What one row must fulfil alone to take part in a rule: columns that are not null, and filters."""

    not_null: frozenset[str]
    filters: tuple[TypedPredicate, ...] = ()


@dataclass
class Side:
    """One role in a family: which codes make its key, which are stored beside it, which gates its rows carry."""

    family: int
    role: str
    """"left", "right", or "both" where one side serves both."""
    equals: tuple[int, ...]
    codes: dict[int, int] = field(default_factory=dict)
    """Each code, and its place among the side's columns."""
    gates: dict[Gate, int] = field(default_factory=dict)
    """Each gate, and its bit."""
    stored: bool = False
    always_open: bool = True
    """Whether a calm row without nulls passes all gates."""
    gated: bool = True
    """Whether every program has a gate here, so that a row which passes none is of no use."""

    def column_of(self, code: int) -> int:
        """The position of a code among the side's columns; added where it is new."""
        return self.codes.setdefault(code, len(self.codes))

    def gate_of(self, gate: Gate) -> int:
        """The bit of a gate; -1 for one that every row of the side passes."""
        if not gate.not_null and not gate.filters:
            self.gated = False
            return -1
        self.always_open &= all(is_calm(said) for said in gate.filters)
        return self.gates.setdefault(gate, len(self.gates))


@dataclass(frozen=True)
class Target:
    """What a program finds pairs for."""

    rule: int
    query_is_left: bool
    verify: tuple[TypedPredicate, ...]
    """Predicates whose codes only select candidates: true values must confirm them."""


@dataclass(frozen=True)
class Probe:
    """Programs that take rows of one side and walk the trees of another (or the same)."""

    queries: int
    stored: int
    programs: Programs
    targets: tuple[Target, ...]
    within: int
    """The programs, as bits, that find all pairs within one set of rows."""

    def wanted(self, *, within: bool, rule: int | None = None) -> int:
        """The programs to run, as bits: within one set or between two, for one rule or all."""
        if rule is None and not within:
            return -1
        bits = self.within if within else -1
        if rule is not None:
            bits &= sum(1 << number for number, target in enumerate(self.targets) if target.rule == rule)
        return bits


@dataclass(frozen=True)
class Family:
    """Rules that share their equality columns."""

    equalities: tuple[tuple[str, str], ...]
    """(column of t, column of s)."""
    left: int
    right: int
    rules: tuple[int, ...]


@dataclass(frozen=True)
class Plan:
    """How a set of rules is kept: see the module's text."""

    rules: tuple[BoundRule, ...]
    codes: tuple[CodeColumn, ...]
    sides: tuple[Side, ...]
    families: tuple[Family, ...]
    probes: tuple[Probe, ...]
    one_row: tuple[tuple[int, Gate], ...]
    """Rules on a single row: a row that passes the gate is a violation."""
    key: tuple[str, ...] = ()
    by_key: Probe | None = None
    """Finds stored rows by their key: the last side holds the key columns."""
    capped: bool = False
    """Whether rows have levels."""
    counting: tuple[Probe, ...] = ()
    """Of a capped plan: the first probes, program by program, without a look at levels. Those behind find samples."""

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """Every column that some rule or the key reads: the key first, then by name."""
        read = {name for bound in self.rules for name in bound.rule.columns}
        return (*self.key, *sorted(read - set(self.key)))

    @cached_property
    def stored_columns(self) -> tuple[str, ...]:
        """The columns as they are stored: those of a capped plan are followed by luck and levels."""
        return (*self.columns, *(field.name for field in flood_fields(self.rules) if self.capped))


def plan(rules: Iterable[BoundRule], key: Mapping[str, ColumnType] | None = None, *, capped: bool = False) -> Plan:
    """The plan of a set of bound rules over a table with the given key columns. Linear in the number of predicates."""
    return _Planner(tuple(rules), capped=capped).plan(key or {})


class _Planner:
    def __init__(self, rules: tuple[BoundRule, ...], *, capped: bool) -> None:
        self.rules = rules
        self.capped = capped and any(not bound.rule.one_row for bound in rules)
        self.codes: dict[CodeColumn, int] = {}
        self.sides: list[Side] = []
        self.families: dict[tuple[tuple[int, int], ...], list[int]] = {}
        self.one_row: list[tuple[int, Gate]] = []
        self.names: list[str] = []

    def plan(self, key: Mapping[str, ColumnType]) -> Plan:
        for number, bound in enumerate(self.rules):
            if bound.rule.one_row:
                self.one_row.append((number, _gate((), bound.left_filter, "t")))
            else:
                equalities = sorted((self.code(p, p.left), self.code(p, p.right)) for p in bound.pairs if p.op is Op.EQ)
                self.families.setdefault(tuple(equalities), []).append(number)
        families: list[Family] = []
        probes: list[Probe] = []
        counting: list[Probe] = []
        sampling: list[Probe] = []
        self.names = [code.column for code in self.codes]
        for shared, members in self.families.items():
            family = self.family(len(families), shared, members)
            families.append(family)
            rules = [(number, self.rules[number]) for number in members]
            if not self.capped:
                probes += self.probes(family, rules)
                continue
            probes += self.probes(family, [(number, calm(bound, number)) for number, bound in rules])
            counting += self.probes(family, rules)
            sampled = self.family(len(families) - 1, shared, members)
            sampling += self.probes(
                sampled, [(number, one) for number, bound in rules for one in samples(bound, number)]
            )
        by_key = self.by_key(key) if key else None
        return Plan(
            self.rules, tuple(self.codes), tuple(self.sides), tuple(families), (*probes, *sampling),
            tuple(self.one_row), tuple(key), by_key, self.capped, tuple(counting),
        )  # fmt: skip

    def by_key(self, key: Mapping[str, ColumnType]) -> Probe:
        """Looking rows up by key is a probe without further predicates, of a side that all rows are on."""
        same = [TypedPredicate(Column("t", name), Op.EQ, Column("s", name), domain) for name, domain in key.items()]
        side = Side(-1, "key", tuple(self.code(predicate, predicate.left) for predicate in same), stored=True)
        self.sides.append(side)
        verify = tuple(predicate for predicate in same if not _coding(predicate).exact)
        at = len(self.sides) - 1
        return _packed(at, at, [(Target(-1, True, verify), [], (-1, -1, HALF))], range(1))

    def code(self, predicate: TypedPredicate, operand: object) -> int:
        assert isinstance(operand, Column)
        how = coding(predicate.domain, ordered=predicate.op.is_order)
        return self.codes.setdefault(CodeColumn(operand.name, how), len(self.codes))

    def family(self, number: int, equalities: tuple[tuple[int, int], ...], members: Sequence[int]) -> Family:
        left, right = tuple(a for a, _ in equalities), tuple(b for _, b in equalities)
        self.sides.append(Side(number, "both" if left == right else "left", left))
        if left != right:
            self.sides.append(Side(number, "right", right))
        last = len(self.sides) - 1
        columns = tuple((self.names[a], self.names[b]) for a, b in equalities)
        return Family(columns, last if left == right else last - 1, last, tuple(members))

    def probes(self, family: Family, rules: Iterable[tuple[int, BoundRule]]) -> list[Probe]:
        """One group of programs for each pair of sides, cut to what one walk can hold.

        A rule may come in several parts, each with the number of the rule.
        """
        forward: list[tuple[Target, list[tuple[int, int, int]], tuple[int, int, int]]] = []
        backward: list[tuple[Target, list[tuple[int, int, int]], tuple[int, int, int]]] = []
        for number, bound in rules:
            forward.append(self.program(number, bound, family, query_is_left=True))
            self.sides[family.right].stored = True
            if not bound.rule.symmetric:
                backward.append(self.program(number, bound, family, query_is_left=False))
                self.sides[family.left].stored = True
        if family.left == family.right:
            both = [*forward, *backward]
            return [
                _packed(family.left, family.right, both[at : at + MAX_PROGRAMS], range(at, len(forward)))
                for at in range(0, len(both), MAX_PROGRAMS)
            ]
        groups = [(family.left, family.right, forward, True), (family.right, family.left, backward, False)]
        return [
            _packed(queries, stored, programs[at : at + MAX_PROGRAMS], range(at, len(programs) if within else at))
            for queries, stored, programs, within in groups
            for at in range(0, len(programs), MAX_PROGRAMS)
        ]

    def program(
        self, number: int, bound: BoundRule, family: Family, *, query_is_left: bool
    ) -> tuple[Target, list[tuple[int, int, int]], tuple[int, int, int]]:
        """A rule as predicates over (stored column, op, query column), its gates, and how it pairs within one set."""
        left, right = self.sides[family.left], self.sides[family.right]
        others = [predicate for predicate in bound.pairs if predicate.op is not Op.EQ]
        predicates = []
        for predicate in others:
            in_left = left.column_of(self.code(predicate, predicate.left))
            in_right = right.column_of(self.code(predicate, predicate.right))
            op = _relaxed(predicate)
            if query_is_left:
                predicates.append((in_right, op.flipped().value, in_left))
            else:
                predicates.append((in_left, op.value, in_right))
        left_gate = left.gate_of(_gate((p.left for p in others), bound.left_filter, "t"))
        right_gate = right.gate_of(_gate((p.right for p in others), bound.right_filter, "s"))
        stored_gate, query_gate = (right_gate, left_gate) if query_is_left else (left_gate, right_gate)
        verify = tuple(p for p in bound.pairs if p.op is not Op.NE and not _coding(p).exact)
        meets = HALF if bound.rule.symmetric else OTHERS
        return Target(number, query_is_left, verify), predicates, (stored_gate, query_gate, meets)


def _coding(predicate: TypedPredicate) -> Coding:
    return coding(predicate.domain, ordered=predicate.op.is_order)


def _relaxed(predicate: TypedPredicate) -> Op:
    """What must hold between codes if the predicate holds between values: a strict order may tie in its prefix."""
    if _coding(predicate).exact or not predicate.op.is_order:
        return predicate.op
    return Op(predicate.op.value | Op.EQ.value)


def _gate(columns: Iterable[object], filters: Iterable[TypedPredicate], row: str) -> Gate:
    """A gate with its filters written over t, so that equal ones of both rows are one."""
    names = frozenset(column.name for column in columns if isinstance(column, Column) and not is_mark(column.name))
    return Gate(names, tuple(_over_t(predicate) for predicate in filters))


def _over_t(predicate: TypedPredicate) -> TypedPredicate:
    right = Column("t", predicate.right.name) if isinstance(predicate.right, Column) else predicate.right
    return replace(predicate, left=Column("t", predicate.left.name), right=right)


def _packed(
    queries: int,
    stored: int,
    programs: Sequence[tuple[Target, list[tuple[int, int, int]], tuple[int, int, int]]],
    within: range,
) -> Probe:
    heads: list[tuple[int, ...]] = []
    predicates: list[tuple[int, int, int]] = []
    for _, mine, (stored_gate, query_gate, meets) in programs:
        heads.append((len(predicates), len(predicates) + len(mine), stored_gate, query_gate, meets))
        predicates += mine
    return Probe(
        queries,
        stored,
        Programs(
            np.array(heads, np.int64).reshape(-1, 5),
            np.array(predicates, np.int64).reshape(-1, 3),
        ),
        tuple(target for target, _, _ in programs),
        (1 << min(len(within), len(programs))) - 1 if len(within) else 0,
    )
