"""How many values columns have in common, counted over a table in pieces: the two steps that Spark's workers do.

First the values of every piece with their numbers, each written as bytes that are equal where the values are, in the
type in which two columns meet. Then, with all counts of a value together, what each two columns share of it: the
smaller count. Cost: a pass over the columns that may meet, and a sort of each piece.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weever_stream.index.codes import coding, encode, flatten, in_domain

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from weever_stream.index.arrays import Ints
    from weever_stream.rules.types import ColumnType

    Meeting = tuple[str, str, ColumnType]

__all__ = ["counted_values", "shared_values"]

_WIDE = 32
"""Bytes of a wide decimal."""
_AT_ONCE = 1 << 12
"""Values that are spread over a table of all columns."""


def counted_values(
    batches: Iterable[pa.RecordBatch], names: Sequence[str], possible: Sequence[Meeting]
) -> Iterator[pa.RecordBatch]:
    """For columns in the order of `names`: family (a type of `possible`), place (of the column), value, times."""
    wanted = dict.fromkeys((name, domain) for one, other, domain in possible for name in (one, other))
    families = _families(possible)
    for batch in batches:
        for name, domain in wanted:
            place = list(names).index(name)
            values, times = _values(batch.column(place), domain)
            yield pa.record_batch(
                {
                    "family": pa.array(np.full(len(values), families[domain], np.int32)),
                    "place": pa.array(np.full(len(values), place, np.int32)),
                    "value": values,
                    "times": pa.array(times),
                }
            )


def shared_values(
    batches: Iterable[pa.RecordBatch], names: Sequence[str], possible: Sequence[Meeting]
) -> Iterator[pa.RecordBatch]:
    """From each value's family, and the places and times that it has, to what each meeting shares: which, common."""
    families, common = _families(possible), np.zeros(len(possible), np.int64)
    place = {name: at for at, name in enumerate(names)}
    for batch in (some.slice(at, _AT_ONCE) for some in batches for at in range(0, some.num_rows, _AT_ONCE)):
        table = np.zeros((batch.num_rows, len(names)), np.int64)
        has = batch.column("has")
        row, flat = np.repeat(np.arange(batch.num_rows), has.value_lengths().to_numpy()), has.flatten()
        table[row, flat.field("place").to_numpy()] = flat.field("times").to_numpy()
        family = batch.column("family").to_numpy()
        for which, (one, other, domain) in enumerate(possible):
            mine = table[family == families[domain]]
            common[which] += np.minimum(mine[:, place[one]], mine[:, place[other]]).sum()
    yield pa.record_batch({"which": pa.array(np.arange(len(possible)), pa.int32()), "common": pa.array(common)})


def _families(possible: Sequence[Meeting]) -> dict[ColumnType, int]:
    return {domain: at for at, domain in enumerate(dict.fromkeys(domain for _, _, domain in possible))}


def _values(column: pa.Array, domain: ColumnType) -> tuple[pa.Array, Ints]:
    """The distinct values of a column as bytes, and how often each occurs. Nulls are none."""
    how, column = coding(domain, ordered=False), flatten(column).drop_null()
    if how.exact:
        codes, times = np.unique(encode(column, how)[0], return_counts=True)
        return _bytes(codes.tobytes(), 8), times
    plain = in_domain(column, domain)
    if domain.kind != "string":
        raw = np.frombuffer(plain.buffers()[1], np.uint8) if len(plain) else np.empty(0, np.uint8)
        plain = _bytes(raw[_WIDE * plain.offset : _WIDE * (plain.offset + len(plain))].tobytes(), _WIDE)
    counted = pc.value_counts(plain)
    return counted.field("values").cast(pa.binary()), counted.field("counts").to_numpy()


def _bytes(raw: bytes, width: int) -> pa.Array:
    fixed = pa.FixedSizeBinaryArray.from_buffers(pa.binary(width), len(raw) // width, [None, pa.py_buffer(raw)])
    return fixed.cast(pa.binary())
