"""Which row of a written pair the rule calls t: found from the values, since t and s may be exchanged in a job file.

A rule keeps its fingerprint when t and s are exchanged, and rows stay in the sink as they were written. Values are read
as sinks write them: as JSON, where decimals, dates and times are texts. So some comparisons cannot be decided here.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any

from weever_stream.rules.canonical import exchanged
from weever_stream.rules.model import Column, Constant

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weever_stream.rules import Predicate, Rule

__all__ = ["as_written"]

_LEAD = re.compile(r"[-+]?[0-9]+")


def as_written(rule: Rule, left: str | None, right: str | None) -> Sequence[Predicate] | None:
    """The rule's predicates with t for the left row: as they are, or exchanged where only that fits the values.

    None where the values fit neither, so nothing can be said of them.
    """
    rows = {"t": _values(left), "s": _values(right)}
    for predicates in (rule.predicates, exchanged(rule.predicates)):
        if not any(_holds(predicate, rows) is False for predicate in predicates):
            return predicates
        if rule.one_row:
            break
    return None


def _values(text: str | None) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}", parse_float=Decimal)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _holds(predicate: Predicate, rows: Mapping[str, Mapping[str, Any]]) -> bool | None:
    """Whether values satisfy a predicate; None where that cannot be told."""
    values = [_operand(side, rows) for side in (predicate.left, predicate.right)]
    order = _order(*values)
    return None if order is None else bool(predicate.op.value & (1, 2, 4)[order + 1])


def _operand(side: Column | Constant, rows: Mapping[str, Mapping[str, Any]]) -> Any:
    if isinstance(side, Column):
        return rows[side.row].get(side.name)
    from weever_stream.detect.identity import json_value  # loads the engine

    value = side.value
    return value if isinstance(value, Decimal) else json_value(value)


def _order(one: Any, other: Any) -> int | None:
    """-1, 0 or 1 for less, equal and greater; None where the texts leave it open."""
    if one is None or other is None or isinstance(one, bool) != isinstance(other, bool):
        return None
    if isinstance(one, str) and isinstance(other, str):
        return _order_of_texts(one, other)
    try:
        numbers = Decimal(one), Decimal(other)
    except (InvalidOperation, TypeError, ValueError):
        return None
    if not all(number.is_finite() for number in numbers):
        return None
    exact = _compared(*numbers)
    return exact if exact == 0 or float(numbers[0]) != float(numbers[1]) else None  # they may be compared as doubles


def _order_of_texts(one: str, other: str) -> int | None:
    """As texts, and where both begin with a number as numbers or times too: all must agree."""
    by_text = _compared(one, other)
    leads = [_LEAD.match(text) for text in (one, other)]
    if by_text == 0 or leads[0] is None or leads[1] is None:
        return by_text
    try:
        also = _compared(Decimal(one.removesuffix("s")), Decimal(other.removesuffix("s")))  # 1.5s: a duration
    except InvalidOperation:
        whole = [int(lead[0]) for lead in leads if lead is not None]
        cut = [text.rstrip("Z") for text in (one, other)]
        if cut[0].startswith(cut[1]) or cut[1].startswith(cut[0]):  # a date and its midnight may be equal
            return None
        also = _compared(*whole) or _compared(*cut)
    return by_text if also == by_text else None


def _compared(one: Any, other: Any) -> int:
    return int(one > other) - int(one < other)
