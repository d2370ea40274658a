"""Comparisons of one column with several constants: reduced to the tightest, or found impossible.

Only constants of one sort are compared here: numbers with numbers, text with text and so on. Text that looks like a
date is left alone, because it may turn out to be one. Cost: linear in the predicates of the column.
"""

from __future__ import annotations

import math
import re
from dataclasses import replace
from datetime import date, datetime, time
from decimal import Decimal
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from weever_stream.errors import RuleError
from weever_stream.rules.model import Constant, Op, Predicate
from weever_stream.rules.writing import write_predicate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from weever_stream.rules.model import Literals

__all__ = ["never_both", "tightened"]

_LIKE_A_DATE = re.compile(r"\s*\d{2,4}-\d|\s*\d\d:")


def tightened(predicates: Sequence[Predicate]) -> list[Predicate]:
    """The fewest predicates that say what these say of one column. Raises `RuleError` where they contradict."""
    by_sort: dict[str, list[Predicate]] = {}
    kept: list[Predicate] = []
    for predicate in predicates:
        sort = _sort(_value(predicate))
        if sort is None:
            kept.append(predicate)
        else:
            by_sort.setdefault(sort, []).append(predicate)
    for comparable in by_sort.values():
        kept += _tightened(comparable)
    return kept


def _tightened(predicates: list[Predicate]) -> list[Predicate]:
    lower = upper = None
    for predicate in predicates:
        if predicate.op.value & 4 and not predicate.op.value & 1:
            lower = predicate if lower is None or _above(predicate, lower) else lower
        elif predicate.op.value & 1 and not predicate.op.value & 4:
            upper = predicate if upper is None or _below(predicate, upper) else upper
        elif predicate.op is Op.EQ:
            lower = predicate if lower is None or _above(predicate, lower) else lower
            upper = predicate if upper is None or _below(predicate, upper) else upper
    _refuse_empty(lower, upper)
    inside = []
    for predicate in predicates:
        if predicate.op is not Op.NE:
            continue
        for bound in (lower, upper):
            if bound is not None and _order(predicate) == _order(bound) and bound.op.value & 2:
                if lower is not None and upper is not None and _order(lower) == _order(upper):
                    raise never_both(bound, predicate)
                narrowed = replace(bound, op=Op(bound.op.value & Op.NE.value))
                lower, upper = (narrowed if bound is lower else lower), (narrowed if bound is upper else upper)
        if (lower is None or _order(predicate) > _order(lower)) and (
            upper is None or _order(predicate) < _order(upper)
        ):
            inside.append(predicate)
    if lower is not None and upper is not None and _order(lower) == _order(upper):
        return [replace(lower, op=Op.EQ)]
    return [bound for bound in (lower, upper) if bound is not None] + inside


def _refuse_empty(lower: Predicate | None, upper: Predicate | None) -> None:
    if lower is None or upper is None:
        return
    low, high = _order(lower), _order(upper)
    if low > high or (low == high and not lower.op.value & upper.op.value & 2):
        raise never_both(lower, upper)


def _above(one: Predicate, other: Predicate) -> bool:
    """Whether one is the tighter lower bound: a greater constant, or the same one excluded."""
    return (_order(one), not one.op.value & 2) > (_order(other), not other.op.value & 2)


def _below(one: Predicate, other: Predicate) -> bool:
    return (_order(one), bool(one.op.value & 2)) < (_order(other), bool(other.op.value & 2))


def never_both(one: Predicate, other: Predicate) -> RuleError:
    """The error for two predicates that exclude each other, at the later one."""
    if one.place and other.place and (one.place.line, one.place.column) > (other.place.line, other.place.column):
        one, other = other, one
    return RuleError(
        f"the rule can never be violated: `{write_predicate(one)}` excludes `{write_predicate(other)}`",
        place=other.place,
        hint="remove one of the two predicates",
    )


def _value(predicate: Predicate) -> Literals:
    assert isinstance(predicate.right, Constant)
    return predicate.right.value


def _sort(value: Literals) -> str | None:
    """Which constants can be compared with one another before the column's type is known."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | Decimal | float):
        return "number"
    if isinstance(value, str):
        return None if _LIKE_A_DATE.match(value) else "text"
    if isinstance(value, datetime):
        return "instant" if value.tzinfo else "moment"
    return "date" if isinstance(value, date) else "time" if isinstance(value, time) else None


def _order(predicate: Predicate) -> Any:
    """A key that sorts as Spark does: NaN above every number, text by its UTF-8 bytes."""
    value = _value(predicate)
    if isinstance(value, bool | date | time):
        return value
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, float) and not math.isfinite(value):
        return (2 if math.isnan(value) else 1 if value > 0 else -1, 0)
    return (0, Fraction(value))
