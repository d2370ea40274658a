"""The predicates of a rule in the types of their columns: bounds reduced, and what no pair of rows can satisfy refused.

Both need the types. Constants that differ as decimals may be one double. And equality is not transitive when a double
is between: the integers 2^53 and 2^53 + 1 both equal the double 2^53. Cost: about that of sorting a rule's predicates.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, TypeAlias

from weever_stream.errors import RuleError
from weever_stream.rules.bounds import Bound, never_both, order_key, tighten
from weever_stream.rules.model import Column, Constant, Op

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weever_stream.rules.bind import TypedPredicate
    from weever_stream.rules.model import Predicate
    from weever_stream.rules.types import ColumnType

    Typed: TypeAlias = tuple[Predicate, TypedPredicate]
    """A predicate as written, and in its type."""

__all__ = ["tighten_predicates"]

_EXACT_NUMBERS = {"integer", "uint64", "decimal"}
_WALL_TIMES = {"date", "timestamp_ntz"}


def tighten_predicates(typed: Sequence[Typed], types: Mapping[str, ColumnType]) -> list[TypedPredicate]:
    """The fewest predicates that say the same, in the given order. Raises `RuleError` where no pair satisfies them.

    What a column without values, and so without a type, is compared with is left alone: rows to come may satisfy it.
    """
    untyped = {name for name, kind in types.items() if kind.kind == "null"}
    known = [pair for pair in typed if untyped.isdisjoint(column.name for column in pair[0].columns)]
    _refuse_contradiction_through_equalities(known, types)
    kept: dict[int, TypedPredicate] = {}
    bounds: dict[tuple[Column, str], list[int]] = defaultdict(list)
    for at, (_, one) in enumerate(typed):
        if isinstance(one.right, Constant) and one.left.name not in untyped:
            bounds[one.left, _scale(one.domain)].append(at)
        else:
            kept[at] = one
    for places in bounds.values():
        place_of = {id(typed[at][0]): at for at in places}
        for bound in tighten([_bound(*typed[at]) for at in places]):
            at = place_of[id(bound.written)]
            kept[at] = replace(typed[at][1], op=bound.op)
    return [kept[at] for at in sorted(kept)]


def _bound(written: Predicate, typed: TypedPredicate) -> Bound:
    assert isinstance(typed.right, Constant)
    return Bound(typed.op, order_key(typed.right.value), written)


def _scale(domain: ColumnType) -> str:
    """Comparisons of one column on one scale order its values alike; a double may round what is exact elsewhere."""
    if domain.kind in _EXACT_NUMBERS:
        return "exact"
    return "wall time" if domain.kind in _WALL_TIMES else domain.kind


def _refuse_contradiction_through_equalities(typed: Sequence[Typed], types: Mapping[str, ColumnType]) -> None:
    """Puts one column in place of all that have the same value, and joins again: an empty result was never possible."""
    representative = _representatives(typed, types)
    outcomes: dict[tuple[Column, Column], tuple[int, Predicate]] = {}
    bounds: dict[tuple[Column, str], list[Bound]] = defaultdict(list)
    for written, one in typed:
        left = representative.get(one.left, one.left)
        if isinstance(one.right, Constant):
            bounds[left, _scale(one.domain)].append(_bound(written, one))
            continue
        right, op = representative.get(one.right, one.right), one.op
        if left == right and not op.value & Op.EQ.value:
            raise RuleError(
                "the rule can never be violated: its equalities rule this predicate out",
                place=written.place,
                hint="remove the predicate, or one of the equalities",
            )
        if right < left:
            left, right, op = right, left, op.flipped()
        allowed, before = outcomes.get((left, right), (op.value, written))
        if not allowed & op.value:
            raise never_both(before, written)
        outcomes[left, right] = (allowed & op.value, before)
    for group in bounds.values():
        tighten(group)


def _representatives(typed: Sequence[Typed], types: Mapping[str, ColumnType]) -> dict[Column, Column]:
    """For each column that equalities give the same value as another, the first of them.

    Two doubles that are equal are the same, and so are two exact values. An exact value that equals a double is only
    rounded to it: it may differ from the next one that is.
    """
    leaders: dict[Column, Column] = {}

    def leader(column: Column) -> Column:
        while (above := leaders.setdefault(column, column)) != column:
            column = leaders[column] = leaders[above]
        return column

    for _, one in typed:
        if one.op is not Op.EQ or isinstance(one.right, Constant):
            continue
        if one.domain.kind == "float" and {types[one.left.name].kind, types[one.right.name].kind} != {"float"}:
            continue
        first, second = sorted((leader(one.left), leader(one.right)))
        leaders[second] = first
    return {column: leader(column) for column in list(leaders)}
