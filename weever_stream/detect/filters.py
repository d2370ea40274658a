"""Conditions on one row, evaluated for a whole table at once under Spark SQL's comparison.

`passes` is true where every predicate is satisfied; a null satisfies nothing. Exact domains are compared by their
codes, strings and wide decimals by their values. Cost: one vectorised pass a predicate.
"""

from __future__ import annotations

import operator
from dataclasses import replace
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weever_stream.index.arrays import booleans
from weever_stream.index.codes import Coding, encode, flatten, in_domain
from weever_stream.index.codes import coding as coding_of
from weever_stream.rules.model import Column, Op

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from weever_stream.index.arrays import Ints, Mask
    from weever_stream.rules import TypedPredicate
    from weever_stream.rules.model import Literals
    from weever_stream.rules.types import ColumnType

__all__ = ["BY_CODE", "compare_values", "passes"]

BY_CODE: dict[Op, Callable[[Ints, Ints], Mask]] = {
    Op.LT: operator.lt,
    Op.LE: operator.le,
    Op.EQ: operator.eq,
    Op.NE: operator.ne,
    Op.GE: operator.ge,
    Op.GT: operator.gt,
}
_BY_VALUE = {
    Op.LT: pc.less,
    Op.LE: pc.less_equal,
    Op.EQ: pc.equal,
    Op.NE: pc.not_equal,
    Op.GE: pc.greater_equal,
    Op.GT: pc.greater,
}


def passes(table: pa.Table | pa.RecordBatch, predicates: Iterable[TypedPredicate]) -> Mask:
    """Which rows of the table satisfy all predicates. Each names columns of one row only."""
    kept = np.ones(table.num_rows, np.bool_)
    for predicate in predicates:
        left = flatten(table.column(predicate.left.name))
        if isinstance(predicate.right, Column):
            right = flatten(table.column(predicate.right.name))
        else:
            right = _constant(predicate.right.value, predicate.domain)
        kept &= compare_values(left, predicate.op, right, predicate.domain)
    return kept


@lru_cache(maxsize=4096, typed=True)
def _constant(value: Literals, domain: ColumnType) -> pa.Array:
    """A constant as an array of one, of the domain's own type. Made once: small batches pay for every step.

    Times are written to the microsecond at most, and one of the year 9999 does not fit nanoseconds: encoding clips it.
    """
    unit = "us" if domain.unit == "ns" else domain.unit
    return pa.array([value], replace(domain, unit=unit).to_arrow())


def compare_values(left: pa.Array, op: Op, right: pa.Array, domain: ColumnType) -> Mask:
    """`left op right`, element by element; an array of one meets every element. Null never satisfies."""
    how = coding_of(domain, ordered=op.is_order)
    if how.exact:
        return _compare_codes(left, op, right, how)
    one, other = in_domain(left, domain), in_domain(right, domain)
    if one.type != other.type:
        one, other = one.cast(pa.large_string()), other.cast(pa.large_string())
    outcome = _BY_VALUE[op](one, other[0] if len(other) == 1 and len(one) != 1 else other)
    return booleans(outcome)


def _compare_codes(left: pa.Array, op: Op, right: pa.Array, how: Coding) -> Mask:
    (one, one_valid), (other, other_valid) = encode(left, how), encode(right, how)
    outcome = BY_CODE[op](one, other)
    for valid in (one_valid, other_valid):
        if valid is not None:
            outcome = outcome & valid
    return outcome
