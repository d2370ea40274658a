"""Order-preserving int64 codes of column values: what every index compares instead of the values.

For all values x, y of a domain: exact codes have `code(x) op code(y)` if and only if `x op y`, under Spark SQL's
comparison (NaN equals NaN and is the greatest number, -0.0 equals 0.0, strings by UTF-8 bytes, timestamps as
instants). Strings and wide decimals have no exact 64-bit code: a *hash* serves equality and a monotone *prefix*
serves order. Both only select candidates; the true values decide. Cost: one vectorised pass a column.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import TYPE_CHECKING, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weever_stream.index.arrays import booleans, numbers, present

if TYPE_CHECKING:
    from weever_stream.index.arrays import Ints, Mask
    from weever_stream.rules.types import ColumnType

__all__ = ["Coding", "Form", "coding", "encode", "flatten", "in_domain", "ranks"]

Form = Literal["exact", "hash", "prefix"]
# Asking for ids costs a fraction of the predicates in pa.types, and single rows come through here.
_DICTIONARY, _NULL = pa.lib.Type_DICTIONARY, pa.lib.Type_NA
_SMALL_DECIMAL = 18
"""Digits that always fit an int64."""
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


@dataclass(frozen=True)
class Coding:
    """How the values of one comparison become codes: the domain they are compared in, and the form of the code."""

    domain: ColumnType
    form: Form

    @property
    def exact(self) -> bool:
        """Whether codes compare exactly as values do."""
        return self.form == "exact"


def coding(domain: ColumnType, *, ordered: bool) -> Coding:
    """The coding for comparisons in a domain: one for all of them where it is exact, else by their kind."""
    wide = domain.kind == "decimal" and domain.precision > _SMALL_DECIMAL
    if domain.kind != "string" and not wide:
        return Coding(domain, "exact")
    return Coding(domain, "prefix" if ordered else "hash")


def flatten(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """One contiguous array, dictionaries decoded."""
    if isinstance(column, pa.ChunkedArray):
        if column.num_chunks == 1:
            column = column.chunk(0)
        elif column.num_chunks:
            column = pa.concat_arrays(column.chunks)
        else:
            return pa.array([], column.type.value_type if column.type.id == _DICTIONARY else column.type)
    return column.dictionary_decode() if column.type.id == _DICTIONARY else column


def encode(column: pa.Array | pa.ChunkedArray, how: Coding) -> tuple[Ints, Mask | None]:
    """Codes of a column, and which are not null (None where all are). The code of a null means nothing."""
    array = flatten(column)
    if array.type.id == _NULL:
        return np.zeros(len(array), np.int64), np.zeros(len(array), np.bool_)
    valid = None
    if array.null_count:
        valid = present(array)
        if how.domain.kind != "string":
            array = _without_nulls(array)
    return _ENCODERS[how.domain.kind](array, how), valid


def _without_nulls(array: pa.Array) -> pa.Array:
    """The same values with no nulls; what stands in their place is any value of the type."""
    if pa.types.is_decimal(array.type):
        return array.fill_null(pa.scalar(Decimal(0), array.type))
    return pa.Array.from_buffers(array.type, len(array), [None, *array.buffers()[1:]], 0, array.offset)


def _booleans(array: pa.Array, how: Coding) -> Ints:
    return booleans(array).astype(np.int64)


def _integers(array: pa.Array, how: Coding) -> Ints:
    kind = "u" if pa.types.is_unsigned_integer(array.type) else "i"
    return numbers(array, kind).astype(np.int64, copy=False)


def _unsigned(array: pa.Array, how: Coding) -> Ints:
    return (numbers(array.cast(pa.uint64()), "u") ^ np.uint64(1 << 63)).view(np.int64)


def _floats(array: pa.Array, how: Coding) -> Ints:
    if pa.types.is_decimal(array.type):
        # Arrow's own cast is off by one ulp now and then; from text it rounds correctly, as Spark does.
        array = array.cast(pa.string())
    return sortable(numbers(array.cast(pa.float64(), safe=False), "f"))


def sortable(numbers: np.ndarray[tuple[int], np.dtype[np.float64]]) -> Ints:
    """Doubles as integers of the same order, NaN made one and greatest, -0.0 made 0.0."""
    plain = numbers + 0.0
    plain[np.isnan(plain)] = np.nan
    bits = plain.view(np.int64)
    return np.where(bits >= 0, bits, bits ^ np.int64(0x7FFF_FFFF_FFFF_FFFF))


def _temporal(array: pa.Array, how: Coding) -> Ints:
    kind, unit = array.type, how.domain.unit
    if pa.types.is_date(kind):
        days = numbers(array.cast(pa.date32()), "i").astype(np.int64)
        return days if how.domain.kind == "date" else _rescaled(days, 86_400 * _PER_SECOND[unit], 1)
    ticks = numbers(array, "i").astype(np.int64, copy=False)
    return _rescaled(ticks, _PER_SECOND[unit], _PER_SECOND[kind.unit])


def _rescaled(raw: Ints, to: int, of: int) -> Ints:
    """Ticks in a finer unit. What lies beyond its range is cut to the end: still after all that lie within it."""
    if to == of:
        return raw
    factor = to // of
    limit = np.iinfo(np.int64).max // factor
    return np.where(raw > limit, np.iinfo(np.int64).max, np.where(raw < -limit, np.iinfo(np.int64).min, raw * factor))


def _decimals(array: pa.Array, how: Coding) -> Ints:
    if how.exact:
        if pa.types.is_integer(array.type):
            scaled: Ints = _integers(array, how) * np.int64(10**how.domain.scale)
            return scaled
        narrow = array.cast(pa.decimal128(38, how.domain.scale))
        words = np.frombuffer(narrow.buffers()[1], np.int64).reshape(-1, 2)
        low: Ints = words[narrow.offset : narrow.offset + len(narrow), 0].copy()
        return low
    from weever_stream.index.hashing import hash_bytes, prefix_wide

    wide = in_domain(array, how.domain)
    words = np.frombuffer(wide.buffers()[1], np.int64).reshape(-1, 4)[wide.offset : wide.offset + len(wide)]
    return hash_bytes(words.view(np.uint8).reshape(-1), 32) if how.form == "hash" else prefix_wide(words)


def _strings(array: pa.Array, how: Coding) -> Ints:
    from weever_stream.index.hashing import hash_strings, prefix_strings  # compiled code that numbers do not need

    text = in_domain(array, how.domain)
    return hash_strings(text) if how.form == "hash" else prefix_strings(text)


def ranks(distinct: pa.Array) -> Ints:
    """The rank of each of some distinct values; Arrow sorts strings by their UTF-8 bytes."""
    order = numbers(pc.sort_indices(distinct), "u")
    found = np.empty(len(distinct), np.int64)
    found[order] = np.arange(len(distinct))
    return found


def in_domain(array: pa.Array, domain: ColumnType) -> pa.Array:
    """True values of an inexact domain in one Arrow type, so that Arrow can compare them."""
    if domain.kind == "string":
        plain = pa.types.is_string(array.type) or pa.types.is_large_string(array.type)
        return array if plain else array.cast(pa.large_string())
    if pa.types.is_integer(array.type):
        array = array.cast(pa.decimal128(20, 0))
    return pc.cast(array, pa.decimal256(76, domain.scale))


_ENCODERS = {
    "boolean": _booleans,
    "integer": _integers,
    "uint64": _unsigned,
    "float": _floats,
    "date": _temporal,
    "time": _temporal,
    "timestamp": _temporal,
    "timestamp_ntz": _temporal,
    "duration": _temporal,
    "decimal": _decimals,
    "string": _strings,
}
