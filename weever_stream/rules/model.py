"""What a rule is: a denial constraint, the conjunction of predicates that no two different rows may satisfy.

Rows are named `t` (reported as the left row) and `s` (the right row). Values here are plain and frozen; parsing,
normal form, types and files live in the modules beside this one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import date, datetime, time
from decimal import Decimal
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from weever_stream.errors import Place

__all__ = ["SEVERITIES", "Column", "Constant", "Literals", "Op", "Operand", "Predicate", "RowName", "Rule", "Severity"]

RowName = Literal["t", "s"]
Severity = Literal["info", "warning", "error", "critical"]
SEVERITIES: tuple[Severity, ...] = ("info", "warning", "error", "critical")
Literals: TypeAlias = bool | int | Decimal | float | str | date | datetime | time


class Op(Enum):
    """A comparison, as the set of outcomes {less, equal, greater} that satisfy it: bits 1, 2 and 4."""

    LT = 1
    EQ = 2
    LE = 3
    GT = 4
    NE = 5
    GE = 6

    @property
    def symbol(self) -> str:
        """As rule files write it."""
        return _SYMBOLS[self]

    def flipped(self) -> Op:
        """The comparison with its operands exchanged: `a < b` is `b > a`."""
        less, equal, greater = self.value & 1, self.value & 2, self.value & 4
        return Op(less << 2 | equal | greater >> 2)

    @property
    def is_order(self) -> bool:
        """Whether it needs an order, not only equality."""
        return self not in (Op.EQ, Op.NE)


_SYMBOLS = {Op.LT: "<", Op.EQ: "=", Op.LE: "<=", Op.GT: ">", Op.NE: "!=", Op.GE: ">="}


@dataclass(frozen=True, order=True)
class Column:
    """A column of row `t` or `s`."""

    row: RowName
    name: str


@dataclass(frozen=True)
class Constant:
    """A literal value, of the type it was written in."""

    value: Literals


Operand: TypeAlias = Column | Constant


@dataclass(frozen=True)
class Predicate:
    """One comparison. In normal form the left operand is always a column."""

    left: Operand
    op: Op
    right: Operand
    place: Place | None = field(default=None, compare=False, repr=False)

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns it reads, left before right."""
        return tuple(side for side in (self.left, self.right) if isinstance(side, Column))

    @property
    def rows(self) -> frozenset[RowName]:
        """The rows it names."""
        return frozenset(column.row for column in self.columns)


@dataclass(frozen=True)
class Rule:
    """A named denial constraint in normal form: build it with `rules.parse_rule` or read it with `rules.read_rules`.

    `predicates` keep the orientation in which the rule was written (t is the left row of a reported pair); their
    order and spelling are canonical. `fingerprint` is a hash of them, the same with t and s exchanged: rules with equal
    fingerprints deny the same pairs of rows, apart from which row is called t. Rules that deny the same pairs may have
    different ones: a redundant predicate stays, since whether it is redundant may depend on the columns' types.
    """

    name: str
    predicates: tuple[Predicate, ...]
    fingerprint: str
    symmetric: bool
    severity: Severity = "error"
    description: str | None = field(default=None, compare=False)
    owner: str | None = field(default=None, compare=False)
    metadata: Mapping[str, object] = field(default_factory=dict, compare=False)
    alerts: Mapping[str, object] = field(default_factory=dict, compare=False)
    """What the rule says of its alerts: see `filemodel.RuleAlertsModel`."""
    spread: int = field(default=1, compare=False)
    """Into how many parts a stream cuts the rows of a hot key, so that many shards share the work."""
    place: Place | None = field(default=None, compare=False, repr=False)

    @property
    def one_row(self) -> bool:
        """Whether it names only `t`: its violations are single rows."""
        return all(predicate.rows == {"t"} for predicate in self.predicates)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns it reads, sorted."""
        return tuple(sorted({column.name for predicate in self.predicates for column in predicate.columns}))
