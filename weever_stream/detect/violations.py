"""Violations as people and sinks read them: rule, keys, values, a stable id.

`Violations` reads what the engine found only when asked: iterating gives `Violation` objects, `to_arrow` a table with
the columns of every output of the product. Pairs of a symmetric rule stand with the smaller key on the left.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weever_stream.detect.identity import python_values, violation_id
from weever_stream.detect.texts import ids_of, json_objects, json_strings, keys_of
from weever_stream.index.arrays import as_arrow, booleans
from weever_stream.index.codes import coding, encode, flatten, in_domain
from weever_stream.rules.types import ColumnType, type_of_arrow

if TYPE_CHECKING:
    from weever_stream.detect.found import Found
    from weever_stream.detect.plan import Plan
    from weever_stream.index.arrays import Mask
    from weever_stream.rules.model import Rule, Severity

__all__ = ["OUTPUT_SCHEMA", "Deltas", "Violation", "Violations", "left_is_greater", "named", "output", "smaller_left"]

_CHANGES = {1: "added", -1: "removed"}
OUTPUT_SCHEMA = pa.schema(
    [
        ("rule", pa.string()),
        ("rule_fingerprint", pa.string()),
        ("severity", pa.string()),
        ("change", pa.string()),
        ("violation_id", pa.string()),
        ("left_key", pa.string()),
        ("right_key", pa.string()),
        ("left_values", pa.string()),
        ("right_values", pa.string()),
    ]
)
_ROWS_AT_ONCE = 1 << 16
_STRING = pa.lib.Type_STRING


@dataclass(frozen=True)
class Violation:
    """A pair of rows (or, for a rule on one row, a row) that a rule denies."""

    rule: str
    change: str
    left_key: str
    right_key: str | None
    left: dict[str, Any]
    """The key columns and the columns that the rule reads."""
    right: dict[str, Any] | None
    severity: Severity

    @property
    def id(self) -> str:
        """Stable across runs and machines."""
        return violation_id(self.rule, self.left_key, self.right_key)


class Violations(Sequence[Violation]):
    """Violations that the engine found, read when asked for."""

    def __init__(self, plan: Plan, found: Sequence[Found]) -> None:
        self._plan = plan
        self._found = [piece for piece in found if len(piece)]

    def __len__(self) -> int:
        return sum(len(piece) for piece in self._found)

    def __iter__(self) -> Iterator[Violation]:
        for rule, change, left, right in self._tables(self._found):
            yield from self._read(rule, change, left, right)

    @overload
    def __getitem__(self, index: int) -> Violation: ...
    @overload
    def __getitem__(self, index: slice) -> list[Violation]: ...
    def __getitem__(self, index: int | slice) -> Violation | list[Violation]:
        places = range(len(self))[index]
        if isinstance(places, int):
            return self._at([places])[0]
        return self._at(places)

    def _at(self, places: Sequence[int]) -> list[Violation]:
        """Some violations by place; only those are read."""
        ends = np.cumsum([len(piece) for piece in self._found])
        found = []
        for place in places:
            at = int(np.searchsorted(ends, place, "right"))
            inside = np.array([place - (ends[at] - len(self._found[at]))])
            found += [one for table in self._tables([self._found[at].take(inside)]) for one in self._read(*table)]
        return found

    def first(self, rule: str) -> Violation | None:
        """The first of a rule, if there is one; no other is read."""
        for piece in self._found:
            if self._plan.rules[piece.rule].rule.name == rule:
                one = Violations(self._plan, [piece.take(np.zeros(1, np.int64))])
                return one[0]
        return None

    def _read(self, rule: int, change: str, left: pa.RecordBatch, right: pa.RecordBatch | None) -> Iterator[Violation]:
        about, key = self._plan.rules[rule].rule, self._plan.key
        nobody = [(None, None)] * left.num_rows
        lefts = zip(keys_of(left, key).to_pylist(), _dicts(left), strict=True)
        rights = nobody if right is None else zip(keys_of(right, key).to_pylist(), _dicts(right), strict=True)
        for (left_key, left_values), (right_key, right_values) in zip(lefts, rights, strict=True):
            yield Violation(about.name, change, left_key, right_key, left_values, right_values, about.severity)

    def __repr__(self) -> str:
        return f"<{len(self)} violations>"

    def to_arrow(self) -> pa.Table:
        """A table with `OUTPUT_SCHEMA`."""
        key = self._plan.key
        batches = [
            output(self._plan.rules[number].rule, key, change, left, right)
            for number, change, left, right in self._tables(self._found)
        ]
        return pa.Table.from_batches(batches, OUTPUT_SCHEMA)

    def _tables(self, pieces: Sequence[Found]) -> Iterator[tuple[int, str, pa.RecordBatch, pa.RecordBatch | None]]:
        """Rule, change, and the left and right rows, a bounded number at a time."""
        for piece in pieces:
            rule = self._plan.rules[piece.rule].rule
            columns = [*self._plan.key, *(name for name in rule.columns if name not in self._plan.key)]
            for at in range(0, len(piece), _ROWS_AT_ONCE):
                some = slice(at, at + _ROWS_AT_ONCE)
                left = piece.left.take(piece.left_rows[some], columns)
                right = None
                if piece.right is not None and piece.right_rows is not None:
                    right = piece.right.take(piece.right_rows[some], columns)
                    if rule.symmetric:
                        left, right = smaller_left(left, right, self._plan.key)
                yield piece.rule, _CHANGES[piece.sign], left, right


class Deltas(Violations):
    """What a batch of changes added and removed. Iterating gives removals before additions."""

    def __init__(self, plan: Plan, found: Sequence[Found]) -> None:
        super().__init__(plan, sorted(found, key=lambda piece: piece.sign))

    @property
    def added(self) -> Violations:
        """Violations that the batch brought."""
        return Violations(self._plan, [piece for piece in self._found if piece.sign > 0])

    @property
    def removed(self) -> Violations:
        """Violations that the batch ended."""
        return Violations(self._plan, [piece for piece in self._found if piece.sign < 0])

    def __repr__(self) -> str:
        return f"<{len(self.added)} violations added, {len(self.removed)} removed>"


def output(
    rule: Rule, key: Sequence[str], change: str, left: pa.RecordBatch, right: pa.RecordBatch | None
) -> pa.RecordBatch:
    """Pairs of rows as every output of the product tells them."""
    absent = pa.nulls(left.num_rows, pa.large_string())
    keys = [absent if rows is None else keys_of(rows, key) for rows in (left, right)]
    values = [absent if rows is None else json_objects(rows, rule.columns) for rows in (left, right)]
    return named(rule, change, keys[0], keys[1], values[0], values[1])


def named(
    rule: Rule, change: str, left_key: pa.Array, right_key: pa.Array, left_values: pa.Array, right_values: pa.Array
) -> pa.RecordBatch:
    """Violations of a rule with their ids, from the texts of keys and values."""
    n = len(left_key)
    ids = ids_of(rule.name, json_strings(left_key), json_strings(right_key))
    fixed = [pa.repeat(text, n) for text in (rule.name, rule.fingerprint, rule.severity, change)]
    columns = [
        column if column.type.id == _STRING else column.cast(pa.string())
        for column in (*fixed, ids, left_key, right_key, left_values, right_values)
    ]
    return pa.RecordBatch.from_arrays(columns, schema=OUTPUT_SCHEMA)


def _dicts(batch: pa.RecordBatch) -> list[dict[str, Any]]:
    names = batch.schema.names
    columns = [python_values(batch.column(name)) for name in names]
    return [dict(zip(names, row, strict=True)) for row in zip(*columns, strict=True)]


def smaller_left(
    left: pa.RecordBatch, right: pa.RecordBatch, key: Sequence[str]
) -> tuple[pa.RecordBatch, pa.RecordBatch]:
    """The same pairs with the smaller key on the left, compared column by column in the columns' own order."""
    swap = left_is_greater(left, right, key)
    if not swap.any():
        return left, right
    n = left.num_rows
    both = pa.Table.from_batches([left, right]).combine_chunks()
    here, there = np.arange(n), np.arange(n, 2 * n)
    return tuple(
        both.take(as_arrow(which)).combine_chunks().to_batches()[0]
        for which in (np.where(swap, there, here), np.where(swap, here, there))
    )


def left_is_greater(left: pa.RecordBatch, right: pa.RecordBatch, key: Sequence[str]) -> Mask:
    """Which pairs have the greater key on the left."""
    greater = np.zeros(left.num_rows, np.bool_)
    undecided = ~greater
    for name in key:
        one, other = flatten(left.column(name)), flatten(right.column(name))
        more, same = _order(one, other)
        greater |= undecided & more
        undecided &= same
    return greater


def _order(one: pa.Array, other: pa.Array) -> tuple[Mask, Mask]:
    domain = type_of_arrow(one.type)
    assert isinstance(domain, ColumnType)
    how = coding(domain, ordered=True)
    if how.exact:
        a, b = encode(one, how)[0], encode(other, how)[0]
        return a > b, a == b
    first, second = in_domain(one, domain), in_domain(other, domain)
    return booleans(pc.greater(first, second)), booleans(pc.equal(first, second))
