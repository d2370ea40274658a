"""Rules cut into the families that a stream keeps apart, each with a plan of its own.

A family's rules compare the same columns for equality, so rows that can meet have the same key and can be kept in the
same shard. Where both rows read the same equality columns a row is in one shard, and is left and right there.
Elsewhere (crossed columns, no equality at all, a hot key that is spread over a grid) a row is in several shards, and
each tells it which role it plays there, or pairs would be found twice: two boolean columns, `LEFT` and `RIGHT`, that
filter like any other column. Such families look at ordered pairs only; of a symmetric rule the order with the smaller
key on the left is the one that counts. Rules on one row form a family of their own.

What is kept has levels, so that a row with too many partners can list some of its pairs and count the others (`flood`).
Each shard decides that for itself.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from typing import TYPE_CHECKING

from weever_stream.detect.dump import plan_text
from weever_stream.detect.plan import plan
from weever_stream.detect.rows import Encoder
from weever_stream.rules.bind import TypedPredicate
from weever_stream.rules.model import Column, Constant, Op, Predicate
from weever_stream.rules.types import ColumnType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weever_stream.detect.plan import Plan
    from weever_stream.rules.bind import BoundRule

__all__ = ["LEFT", "RIGHT", "FamilyPlan", "families"]

LEFT, RIGHT = "_weever_left", "_weever_right"
_BOOLEAN = ColumnType("boolean")


@dataclass(frozen=True)
class FamilyPlan:
    """One family: what is routed, what is kept, and what is told of it."""

    number: int
    rules: tuple[int, ...]
    """The numbers of its rules among the job's."""
    routed: Plan
    """Rules as they are written: tells where a row belongs, and what a pair is called."""
    kept: Plan
    """The same, with roles where they are told apart, and with levels: tells what is stored and probed."""
    spread: int
    """Rows are cut into so many parts on either side; a pair of parts is a cell, and cells are in different shards."""
    generation: int = 0
    """When its rules came into the job: what is stored for one generation is nothing to another."""
    home: int | None = None
    """The number of the family in whose shards its rows are; None: its own."""

    @cached_property
    def roles(self) -> bool:
        """Whether rows are told their role."""
        return LEFT in self.kept.columns

    @cached_property
    def mirrored(self) -> tuple[bool, ...]:
        """Of each rule, whether its pairs are found twice, once from either row, and told once."""
        return tuple(self.roles and bound.rule.symmetric for bound in self.routed.rules)

    def meets_like(self, other: FamilyPlan) -> bool:
        """Whether pairs meet in the same shards as in another family, if both have one home."""
        sides = [
            (one.spread, one.roles, [family.equalities for family in one.routed.families]) for one in (self, other)
        ]
        return sides[0] == sides[1]

    @cached_property
    def encoder(self) -> Encoder:
        """Of rows that are routed."""
        return Encoder(self.routed)

    @cached_property
    def identity(self) -> str:
        """Changes if and only if what is stored does."""
        born = [f"generation {self.generation}"] if self.generation else []
        text = "\n".join([*plan_text(self.kept), f"spread {self.spread}", *born])
        return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def families(
    rules: Sequence[BoundRule], key: Mapping[str, ColumnType], shards: int, spread: Mapping[str, int] | None = None
) -> tuple[FamilyPlan, ...]:
    """The families of a job. `spread` gives for rules with hot keys, by name, the parts that their rows are cut into.

    Cells of one key must lie in different shards, so there are no more parts than the square root of the shards; a
    family without equality takes as many.
    """
    most = int(shards**0.5)
    whole = plan(rules, key)
    groups: dict[tuple[int, int], list[int]] = {}
    for number, family in enumerate(whole.families):
        for rule in family.rules:
            asked = (spread or {}).get(rules[rule].rule.name, 1)
            parts = most if not family.equalities else min(most, asked)
            groups.setdefault((number, parts), []).append(rule)
    made = []
    for (number, parts), members in groups.items():
        bound = tuple(rules[rule] for rule in members)
        routed = plan(bound, key)
        crossed = whole.families[number].left != whole.families[number].right
        roles = crossed or parts > 1
        kept = plan(tuple(_with_roles(one) for one in bound) if roles else bound, key, capped=True)
        made.append((tuple(members), routed, kept, parts))
    if whole.one_row:
        members = [rule for rule, _ in whole.one_row]
        alone = plan(tuple(rules[rule] for rule in members), key)
        made.append((tuple(members), alone, alone, 1))
    return tuple(FamilyPlan(number, *parts) for number, parts in enumerate(made))


def _with_roles(bound: BoundRule) -> BoundRule:
    """The rule for rows that know their roles: t must be a left row, s a right one."""
    left, right = Column("t", LEFT), Column("s", RIGHT)
    true = Constant(True)
    said = (Predicate(left, Op.EQ, true), Predicate(right, Op.EQ, true))
    return replace(
        bound,
        rule=replace(bound.rule, predicates=(*bound.rule.predicates, *said), symmetric=False),
        left_filter=(*bound.left_filter, TypedPredicate(left, Op.EQ, true, _BOOLEAN)),
        right_filter=(*bound.right_filter, TypedPredicate(right, Op.EQ, true, _BOOLEAN)),
    )
