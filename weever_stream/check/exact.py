"""Exact int64 codes of the columns that rules compare, for a whole table at once.

For all rows t, s and every pair predicate `t.A op s.B` of the rules: `code(t.A) op code(s.B)` if and only if
`t.A op s.B`. Most domains have such codes by themselves. Strings and wide decimals get theirs from a dictionary built
over all columns that are compared with each other: the rank of a value in it, or, where nothing asks for an order, its
place in it. Each column is encoded once, however many rules read it. Cost: a pass a column; dictionaries hash each
value once and sort only the distinct ones.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from threading import RLock
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import pyarrow as pa

from weever_stream.check.keys import Grouping, Part, grouping_of, narrowed, packed
from weever_stream.errors import DataError
from weever_stream.index.arrays import numbers, present
from weever_stream.index.codes import coding, encode, in_domain
from weever_stream.index.codes import ranks as ranks_of
from weever_stream.rules.model import Column, Op
from weever_stream.rules.types import type_of_arrow

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from weever_stream.index.arrays import Ints, Mask
    from weever_stream.rules import BoundRule, TypedPredicate
    from weever_stream.rules.types import ColumnType

__all__ = ["Codes", "ExactCodes", "codes_of_column", "operands"]

_Equalities: TypeAlias = "tuple[tuple[str, str, ColumnType], ...]"
_FAMILY = 2
"""Rules that make it worth to sort a family's rows once for all."""
_FEW_FAMILIES = 300
"""So many are compared with each other."""
_OFFSET_LIMIT = 2**31 - 1
"""Bytes that Arrow's plain strings can hold in one array."""


@dataclass(frozen=True)
class Codes:
    """The codes of one column, and which rows have a value (None: all have)."""

    values: Ints
    valid: Mask | None


@dataclass
class _Dictionary:
    """Columns that share one dictionary, because some rule compares them in one inexact domain."""

    domain: ColumnType
    columns: list[str]
    ordered: bool
    codes: dict[str, Codes] | None = None


class ExactCodes:
    """Codes of a table's columns, made when first asked for and kept. Safe to ask from several threads.

    Rules that it was not made for may be asked too, if they compare only columns that those rules compare.
    """

    def __init__(self, table: pa.Table, rules: Sequence[BoundRule]) -> None:
        self.table = table
        self._lock = RLock()
        self._exact: dict[tuple[str, ColumnType], Codes] = {}
        self._dictionaries = _dictionaries(rules)
        self._parts: dict[tuple[str, str, ColumnType], Part] = {}
        self._groups: dict[_Equalities, Part] = {}
        self._groupings: dict[_Equalities, Grouping] = {}
        self._members = _members(rules)

    def of(self, column: str, domain: ColumnType) -> Codes:
        """The codes of a column in the domain it is compared in."""
        with self._lock:
            how = coding(domain, ordered=False)
            if how.exact:
                if (column, domain) not in self._exact:
                    self._exact[column, domain] = Codes(*encode(self.table[column], how))
                return self._exact[column, domain]
            shared = self._dictionaries[column, _family(domain)]
            if shared.codes is None:
                shared.codes = _by_dictionary(self.table, shared)
            return shared.codes[column]

    def part(self, predicate: TypedPredicate) -> Part:
        """Both operands of a predicate for every row. The codes of nulls mean nothing: leave their rows out."""
        left, right = operands(predicate)
        at = (left, right, predicate.domain)
        with self._lock:
            if at not in self._parts:
                ours, theirs = self.of(left, predicate.domain).values, self.of(right, predicate.domain).values
                self._parts[at] = narrowed(Part(ours, ours if left == right else theirs))
            return self._parts[at]

    def group(self, pairs: Sequence[TypedPredicate]) -> Part:
        """One key for the equalities among some predicates, kept for all rules of the family."""
        at = _equalities(pairs)
        with self._lock:
            if at not in self._groups:
                parts = [self.part(predicate) for predicate in pairs if predicate.op is Op.EQ]
                self._groups[at] = packed(parts, (self.table.num_rows, self.table.num_rows))
            return self._groups[at]

    def grouping(self, pairs: Sequence[TypedPredicate]) -> Grouping | None:
        """The rows that have such a key, sorted by it, where several rules can share the work."""
        at = _equalities(pairs)
        if not at or self._members.get(at, 0) < _FAMILY or any(left != right for left, right, _ in at):
            return None
        with self._lock:
            if at not in self._groupings:
                rows, valid = self.candidates(pairs), self._with_key(pairs)
                if valid is not None:
                    rows = np.flatnonzero(valid) if rows is None else rows[valid[rows]]
                if rows is None:
                    self._groupings[at] = grouping_of(self.group(pairs))
                else:
                    parts = [self.part(predicate).chosen(rows, rows) for predicate in pairs if predicate.op is Op.EQ]
                    some = grouping_of(packed(parts, (len(rows), len(rows))))
                    self._groupings[at] = Grouping(rows[some.order], some.starts)
            return self._groupings[at]

    def _with_key(self, pairs: Sequence[TypedPredicate]) -> Mask | None:
        """The rows without a null in the columns that are compared for equality; None where that is all of them."""
        valid: Mask | None = None
        for predicate in pairs:
            if predicate.op is Op.EQ:
                present = self.of(operands(predicate)[0], predicate.domain).valid
                if present is not None:
                    valid = present if valid is None else valid & present
        return valid

    def candidates(self, pairs: Sequence[TypedPredicate]) -> Ints | None:
        """The rows, ascending, that a family with fewer equalities left over: no other can agree on more of them.

        None where no such family has been sorted, or where it leaves most rows in.
        """
        wanted = frozenset(_equalities(pairs))
        with self._lock:
            smaller = [found.order for at, found in self._groupings.items() if wanted.issuperset(at)]
        fewest = min(smaller, key=len, default=None)
        return np.sort(fewest) if fewest is not None and 2 * len(fewest) < self.table.num_rows else None


def _members(rules: Sequence[BoundRule]) -> dict[_Equalities, int]:
    """How many rules ask for each set of equalities, or for more than it."""
    asked = Counter(_equalities(rule.pairs) for rule in rules)
    if len(asked) > _FEW_FAMILIES:
        return asked
    sets = {at: frozenset(at) for at in asked}
    return {at: sum(asked[more] for more in asked if sets[more] >= sets[at]) for at in asked}


def _equalities(pairs: Sequence[TypedPredicate]) -> _Equalities:
    return tuple((*operands(predicate), predicate.domain) for predicate in pairs if predicate.op is Op.EQ)


def operands(predicate: TypedPredicate) -> tuple[str, str]:
    """The names of the two columns that a pair predicate compares."""
    assert isinstance(predicate.right, Column)
    return predicate.left.name, predicate.right.name


def codes_of_column(table: pa.Table, name: str) -> Codes:
    """Codes of one column by itself, in its own order. Raises `DataError` for a type that cannot be compared."""
    kind = type_of_arrow(table.schema.field(name).type)
    if isinstance(kind, str):
        raise DataError(
            f"column {name} is of type {kind}, which cannot be compared", hint="name rows by another column"
        )
    how = coding(kind, ordered=True)
    if how.exact:
        return Codes(*encode(table[name], how))
    return _by_dictionary(table, _Dictionary(kind, [name], ordered=True))[name]


def _family(domain: ColumnType) -> str:
    """Inexact domains whose values one dictionary can hold together: all strings, and wide decimals of one scale.

    In a greater scale a decimal may not fit its 76 digits any more, where another rule compares it with none of them.
    """
    return f"{domain.kind} {domain.scale}"


def _dictionaries(rules: Iterable[BoundRule]) -> dict[tuple[str, str], _Dictionary]:
    """The connected components of columns under "is compared with", among the inexact domains."""
    found: dict[tuple[str, str], _Dictionary] = {}
    for rule in rules:
        for predicate in rule.pairs:
            domain = predicate.domain
            if coding(domain, ordered=False).exact:
                continue
            joined = _Dictionary(domain, [], predicate.op.is_order)
            for name in operands(predicate):
                known = found.get((name, _family(domain)))
                joined.columns += [c for c in (known.columns if known else [name]) if c not in joined.columns]
                if known:
                    joined.ordered |= known.ordered
            for name in joined.columns:
                found[name, _family(domain)] = joined
    return found


def _by_dictionary(table: pa.Table, shared: _Dictionary) -> dict[str, Codes]:
    """Encodes all columns of one dictionary together."""
    given = [table[name] for name in shared.columns]
    slim = all(pa.types.is_string(c.type) for c in given) and sum(c.nbytes for c in given) < _OFFSET_LIMIT
    columns = [_plain(column, shared.domain, pa.string() if slim else pa.large_string()) for column in given]
    together = pa.chunked_array([chunk for column in columns for chunk in column.chunks], columns[0].type)
    encoded = together.dictionary_encode().unify_dictionaries()
    if not encoded.num_chunks:
        return {name: Codes(np.empty(0, np.int64), None) for name in shared.columns}
    ranks = ranks_of(encoded.chunk(0).dictionary) if shared.ordered else None
    places = [chunk.indices for chunk in encoded.chunks]
    nulls = together.null_count > 0
    values = np.concatenate([numbers(p, "i") for p in places]).astype(np.int64)
    valid = np.concatenate([present(p) for p in places]) if nulls else None
    if valid is not None:
        values[~valid] = 0
    if ranks is not None and len(ranks):
        values = ranks[values]
    rows = table.num_rows
    return {
        name: Codes(values[i * rows : (i + 1) * rows], None if valid is None else valid[i * rows : (i + 1) * rows])
        for i, name in enumerate(shared.columns)
    }


def _plain(column: pa.ChunkedArray, domain: ColumnType, text: pa.DataType) -> pa.ChunkedArray:
    """True values in the one Arrow type of their dictionary."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if domain.kind != "string":
        column = column.cast(pa.int64()) if pa.types.is_null(column.type) else column
        return pa.chunked_array([in_domain(chunk, domain) for chunk in column.chunks], pa.decimal256(76, domain.scale))
    return column if column.type == text else column.cast(text)
