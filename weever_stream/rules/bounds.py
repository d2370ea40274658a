"""Comparisons of one column with several constants: reduced to the tightest, or found impossible.

How two constants compare depends on the column: 0.3 and 0.30000000000000001 are two decimals and one double. So bounds
are reduced only when the column's type is known (`tighten`). Before that, a rule is refused only where its bounds
exclude each other in every type a column can have (`refuse_disjoint`). Cost: linear in the predicates of the column.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from datetime import date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from weever_stream.errors import RuleError
from weever_stream.rules.model import Constant, Op, Predicate
from weever_stream.rules.writing import write_predicate

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weever_stream.rules.model import Literals

__all__ = ["Bound", "never_both", "order_key", "refuse_disjoint", "tighten"]

_LIKE_A_DATE = re.compile(r"\s*\d{2,4}-\d|\s*\d\d:")


@dataclass(frozen=True)
class Bound:
    """A column compared with a constant: the operator, the constant's sort key, and the predicate as written."""

    op: Op
    key: Any
    written: Predicate

    @property
    def is_lower(self) -> bool:
        """Whether smaller values are excluded."""
        return not self.op.value & Op.LT.value

    @property
    def is_upper(self) -> bool:
        """Whether greater values are excluded."""
        return not self.op.value & Op.GT.value

    @property
    def has_equal(self) -> bool:
        """Whether the constant itself is allowed."""
        return bool(self.op.value & Op.EQ.value)


def tighten(bounds: Sequence[Bound]) -> list[Bound]:
    """The fewest bounds that allow the same values. Keys must sort as the column's values do in these comparisons.

    Raises `RuleError` where no value is allowed.
    """
    lower, upper = _tightest(bounds)
    if lower and upper and (lower.key > upper.key or (lower.key == upper.key and not _meet(lower, upper))):
        raise never_both(lower.written, upper.written)
    inside = []
    for bound in bounds:
        if bound.op is not Op.NE:
            continue
        if lower and upper and lower.key == upper.key == bound.key:
            raise never_both(lower.written, bound.written)
        if lower and bound.key == lower.key:
            lower = replace(lower, op=Op.GT)
        elif upper and bound.key == upper.key:
            upper = replace(upper, op=Op.LT)
        elif (lower is None or bound.key > lower.key) and (upper is None or bound.key < upper.key):
            inside.append(bound)
    if lower and upper and lower.key == upper.key:
        return [replace(lower, op=Op.EQ)]
    return [bound for bound in (lower, upper) if bound] + inside


def _tightest(bounds: Iterable[Bound]) -> tuple[Bound | None, Bound | None]:
    """The greatest lower and the least upper bound; of equal ones the one that excludes its constant."""
    lower = upper = None
    for bound in bounds:
        if bound.is_lower and (lower is None or (bound.key, not bound.has_equal) > (lower.key, not lower.has_equal)):
            lower = bound
        if bound.is_upper and (upper is None or (bound.key, bound.has_equal) < (upper.key, upper.has_equal)):
            upper = bound
    return lower, upper


def _meet(lower: Bound, upper: Bound) -> bool:
    return lower.has_equal and upper.has_equal


def refuse_disjoint(predicates: Iterable[Predicate]) -> None:
    """Raises `RuleError` if two comparisons of one column exclude each other whatever its type is.

    Numbers are compared as doubles here: rounding never turns two constants round, so those whose doubles differ are in
    the same order in every type. Text that looks like a date is left alone: it may turn out to be one.
    """
    by_column: dict[tuple[Any, str], list[Bound]] = {}
    for predicate in predicates:
        if isinstance(predicate.right, Constant) and (sort := _sort(predicate.right.value)):
            key = order_key(_rounded(predicate.right.value))
            by_column.setdefault((predicate.left, sort), []).append(Bound(predicate.op, key, predicate))
    for bounds in by_column.values():
        lower, upper = _tightest(bounds)
        if lower and upper and lower.key > upper.key:
            raise never_both(lower.written, upper.written)


def never_both(one: Predicate, other: Predicate) -> RuleError:
    """The error for two predicates that exclude each other, at the later one."""
    if one.place and other.place and (one.place.line, one.place.column) > (other.place.line, other.place.column):
        one, other = other, one
    return RuleError(
        f"the rule can never be violated: `{write_predicate(one)}` excludes `{write_predicate(other)}`",
        place=other.place,
        hint="remove one of the two predicates",
    )


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


def _rounded(value: Literals) -> Literals:
    return float(Decimal(value)) if isinstance(value, int | Decimal) and not isinstance(value, bool) else value


def order_key(value: Literals) -> Any:
    """A key that sorts constants of one type as Spark does: NaN above every number, text by its UTF-8 bytes."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if isinstance(value, float):
        return (1, 0.0) if math.isnan(value) else (0, value)
    if isinstance(value, date) and not isinstance(value, datetime):
        return datetime(value.year, value.month, value.day)
    return value
