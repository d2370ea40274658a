"""The normal form of a rule, which does not depend on how the rule is spelled, and its fingerprint.

An operator is the set of outcomes {less, equal, greater} that satisfy it, so two comparisons of the same operands
join by intersection: `<=` and `!=` make `<`, and an empty intersection can never be satisfied. That is exact under
Spark's order, which is total on all values but null, and a null satisfies no comparison at all.

Normal form: t before s, columns before constants, comparisons of one pair of operands joined, equalities between rows
first, sorted. Only steps that are right for columns of every type are taken here: comparisons with different
constants, and chains of equalities, are looked at when the types are known (`tightening`). Cost: n log n in the
predicates of a rule.
"""

from __future__ import annotations

import json
from dataclasses import replace
from hashlib import sha256
from typing import TYPE_CHECKING

from weever_stream.errors import RuleError
from weever_stream.rules.bounds import never_both, refuse_disjoint
from weever_stream.rules.literals import normalized, write_literal
from weever_stream.rules.model import Column, Constant, Op, Operand, Predicate, RowName, Rule
from weever_stream.rules.reserved import RENAME, is_reserved
from weever_stream.rules.writing import write_operand

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from weever_stream.errors import Place
    from weever_stream.rules.model import Severity

__all__ = ["canonical", "exchanged", "make_rule"]

_OTHER: dict[RowName, RowName] = {"t": "s", "s": "t"}


def make_rule(
    name: str,
    predicates: Iterable[Predicate],
    *,
    severity: Severity = "error",
    description: str | None = None,
    owner: str | None = None,
    metadata: Mapping[str, object] | None = None,
    place: Place | None = None,
) -> Rule:
    """A rule in normal form. Raises `RuleError` where it is empty, trivial or can never be violated."""
    try:
        normal = canonical(predicates)
        fingerprint, symmetric = _identity(normal)
    except RuleError as error:
        raise error.at(rule=name) from None
    return Rule(
        name=name,
        predicates=normal,
        fingerprint=fingerprint,
        symmetric=symmetric,
        severity=severity,
        description=description,
        owner=owner,
        metadata=metadata or {},
        place=place,
    )


def canonical(predicates: Iterable[Predicate]) -> tuple[Predicate, ...]:
    """The predicates in normal form. The row called t stays t, unless the rule names only s."""
    written = list(predicates)
    if not written:
        raise RuleError("the rule has no predicate")
    for predicate in written:
        for column in predicate.columns:
            if is_reserved(column.name):
                raise RuleError(f"a column cannot be named {column.name}", place=predicate.place, hint=RENAME)
    if all(column.row == "s" for predicate in written for column in predicate.columns):
        written = [_renamed(predicate) for predicate in written]
    joined = _joined(map(_oriented, written))
    refuse_disjoint(joined)
    return tuple(sorted(joined, key=_rank))


def exchanged(predicates: Iterable[Predicate]) -> tuple[Predicate, ...]:
    """The normal form with t and s exchanged."""
    return tuple(sorted((_oriented(_renamed(predicate)) for predicate in predicates), key=_rank))


def _identity(predicates: Sequence[Predicate]) -> tuple[str, bool]:
    """The fingerprint, which is the same with t and s exchanged, and whether the exchange changes nothing.

    A rule on one row has no pairs, so it is not called symmetric.
    """
    text = _text(predicates)
    symmetric = False
    if any(predicate.rows != {"t"} for predicate in predicates):
        other = _text(exchanged(predicates))
        text, symmetric = min(text, other), text == other
    try:
        return sha256(text.encode()).hexdigest()[:16], symmetric
    except UnicodeEncodeError:
        raise RuleError("a name or a text of the rule is not valid Unicode: it has half of a surrogate pair") from None


def _text(predicates: Iterable[Predicate]) -> str:
    parts = [[*_key(p.left), p.op.value, *_key(p.right)] for p in predicates]
    return json.dumps(parts, ensure_ascii=False, separators=(",", ":"))


def _renamed(predicate: Predicate) -> Predicate:
    left, right = (
        Column(_OTHER[side.row], side.name) if isinstance(side, Column) else side
        for side in (predicate.left, predicate.right)
    )
    return Predicate(left, predicate.op, right, predicate.place)


def _oriented(predicate: Predicate) -> Predicate:
    """Column first, t before s, columns of one row by name, constants in one spelling."""
    left, op, right, place = predicate.left, predicate.op, predicate.right, predicate.place
    if isinstance(left, Constant):
        if isinstance(right, Constant):
            raise RuleError("the predicate compares two constants", place=place, hint="a predicate reads a column")
        left, op, right = right, op.flipped(), left
    elif isinstance(right, Column):
        if left == right:
            always = "always" if op.value & Op.EQ.value else "never"
            raise RuleError(
                f"{write_operand(left)} compared with itself is {always} true",
                place=place,
                hint="compare two rows, t and s, or two columns",
            )
        if _key(right) < _key(left):
            left, op, right = right, op.flipped(), left
    if isinstance(right, Constant):
        right = Constant(normalized(right.value))
    return Predicate(left, op, right, place)


def _joined(predicates: Iterable[Predicate]) -> list[Predicate]:
    """One predicate for each pair of operands: the intersection of all that compare them."""
    by_operands: dict[tuple[str, ...], Predicate] = {}
    for predicate in predicates:
        operands = (*_key(predicate.left), *_key(predicate.right))
        known = by_operands.setdefault(operands, predicate)
        if known.op is not predicate.op:
            outcomes = known.op.value & predicate.op.value
            if not outcomes:
                raise never_both(known, predicate)
            by_operands[operands] = replace(known, op=Op(outcomes))
    return list(by_operands.values())


def _key(operand: Operand) -> tuple[str, str, str]:
    """Columns before constants, t before s; constants by type, since True == 1 in Python."""
    if isinstance(operand, Column):
        return ("0" if operand.row == "t" else "1", operand.name, "")
    return ("2", type(operand.value).__name__, write_literal(operand.value))


def _rank(predicate: Predicate) -> tuple[object, ...]:
    left, right = predicate.left, predicate.right
    assert isinstance(left, Column)
    if isinstance(right, Column) and right.row != left.row:
        group = 0 if predicate.op is Op.EQ else 1
    else:
        group = 2 if left.row == "t" else 3
    return (group, _key(left), _key(right), predicate.op.value)
