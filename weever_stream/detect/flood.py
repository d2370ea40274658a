"""Rows with too many partners: of their pairs a sample is listed, the others are only counted.

A million rows with one key make 5·10¹¹ pairs. Nobody reads them and no memory holds them, so a row that has more than
`cap` partners under a rule when it is put is *flooded* there, and lists only some of its pairs. Which ones is fixed for
the life of the row, so that what is told as added is told as removed later, without a ledger:

- The **luck** of a row is the number of trailing zeros of its key's hash: half of all rows have at least 1, one of 64
  has at least 6, and so on.
- The **level** of a row under a rule is 0 if it is calm, and else so high that about 16 to 32 of its partners have as
  much luck.
- A pair is listed if and only if each row's luck is at least the other's level.

So a pair of calm rows is always listed, one wrong row among a million good ones lists a few of its pairs, and of a
million rows with one key a handful of lucky ones list theirs. Levels and luck are columns, stored with the row, and
filter like any other column: probing, cancelling, merging and saving know nothing of floods. Calm pairs are found by
the rule with the filter `level = 0` on both rows. Pairs with a flooded row are found through an index of their own (see
`samples`) that holds flooded rows and one row of 64, so where nothing is flooded little is paid.

What is not listed is counted. Levels depend on the rows that are there and on those of the same batch, not on the order
in which a batch comes, so a batch that is repeated decides the same; another cut of the feed into batches may not.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from weever_stream.detect.filters import BY_CODE
from weever_stream.index import hashing
from weever_stream.index.arrays import numbers
from weever_stream.index.codes import encode
from weever_stream.rules.bind import TypedPredicate
from weever_stream.rules.model import Column, Constant, Op
from weever_stream.rules.types import ColumnType

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from weever_stream.detect.plan import Plan, Side
    from weever_stream.index.arrays import Ints, Mask
    from weever_stream.rules.bind import BoundRule

__all__ = [
    "FIRST", "LUCK", "Marker", "calm", "flood_bits", "flood_fields", "is_calm", "is_mark", "leveled", "levels_of",
    "mark_of", "mark_passes", "samples",
]  # fmt: skip

LUCK = "_weever_luck"
_LEVEL = "_weever_level_"
FIRST = 6
"""The least level of a flooded row. Lower ones would need more of the rows in the index of samples."""
_SAMPLE = 32
"""About how many pairs a flooded row lists at most."""
_MOST = 32
"""No row has more luck."""
_INTEGER = ColumnType("integer")
_ZERO = Constant(0)


def mark_of(rule: int) -> str:
    """The column with the levels of rows under a rule."""
    return f"{_LEVEL}{rule}"


def is_mark(name: str) -> bool:
    """Whether a column is one of ours, which are never null."""
    return name == LUCK or name.startswith(_LEVEL)


def flood_fields(rules: Sequence[BoundRule]) -> list[pa.Field]:
    """The columns that are stored beside the rows' own."""
    levels = [mark_of(number) for number, bound in enumerate(rules) if not bound.rule.one_row]
    return [pa.field(name, pa.int8()) for name in (LUCK, *levels)]


def calm(bound: BoundRule, rule: int) -> BoundRule:
    """The rule between calm rows."""
    return replace(
        bound,
        left_filter=(*bound.left_filter, _typed("t", mark_of(rule), Op.EQ, _ZERO)),
        right_filter=(*bound.right_filter, _typed("s", mark_of(rule), Op.EQ, _ZERO)),
    )


def is_calm(said: TypedPredicate) -> bool:
    """Whether a filter asks no more than that a row is calm."""
    return said.op is Op.EQ and said.left.name.startswith(_LEVEL)


def samples(bound: BoundRule, rule: int) -> tuple[BoundRule, BoundRule]:
    """The listed pairs of the rule in which t is flooded, and those in which only s is."""
    level = mark_of(rule)
    lucky = _typed("t", LUCK, Op.GE, Column("s", level))
    both = _typed("t", level, Op.LE, Column("s", LUCK))
    first = Constant(FIRST)
    flooded = replace(
        bound,
        pairs=(*bound.pairs, both, lucky),
        left_filter=(*bound.left_filter, _typed("t", level, Op.GT, _ZERO)),
        right_filter=(*bound.right_filter, _typed("s", LUCK, Op.GE, first)),
    )
    only_s = replace(
        bound,
        pairs=(*bound.pairs, lucky),
        left_filter=(*bound.left_filter, _typed("t", level, Op.EQ, _ZERO), _typed("t", LUCK, Op.GE, first)),
        right_filter=(*bound.right_filter, _typed("s", level, Op.GT, _ZERO)),
    )
    return flooded, only_s


def _typed(row: str, name: str, op: Op, other: Column | Constant) -> TypedPredicate:
    return TypedPredicate(Column("t" if row == "t" else "s", name), op, other, _INTEGER)


def mark_passes(table: pa.RecordBatch, said: TypedPredicate) -> Mask:
    """Which rows satisfy a filter of `calm` or `samples`. Small batches pay for every step, so this one is short."""
    assert isinstance(said.right, Constant)
    marks = numbers(table.column(said.left.name), "i")
    passed: Mask = BY_CODE[said.op](marks, said.right.value)  # type: ignore[arg-type]
    return passed


def flood_bits(side: Side) -> Ints:
    """The gates of a side that only flooded rows pass, as words of bits."""
    bits = np.zeros((len(side.gates) + 63) // 64, np.int64)
    for gate, number in side.gates.items():
        if any(said.op is Op.GT and said.left.name.startswith(_LEVEL) for said in gate.filters):
            bits[number >> 6] |= np.int64(1) << np.int64(number & 63)
    return bits


def levels_of(degrees: Ints, cap: int) -> Ints:
    """The level of rows with so many partners each: 0 up to the cap, then one more for each doubling."""
    doubled: Ints = np.frexp(((degrees - 1) // _SAMPLE).astype(np.float64))[1].astype(np.int64)
    return np.where(degrees > cap, np.clip(doubled, FIRST, _MOST), 0)


class Marker:
    """Gives new rows their luck, and the level of calm rows."""

    def __init__(self, plan: Plan, schema: pa.Schema) -> None:
        self.schema = pa.schema([*schema, *flood_fields(plan.rules)])
        """What is stored."""
        side = plan.sides[-1]
        self._codes = [(plan.codes[number].column, plan.codes[number].coding) for number in side.equals]

    def marked(self, table: pa.RecordBatch) -> pa.RecordBatch:
        """The rows with the columns of floods behind their own."""
        n = table.num_rows
        codes = np.empty((n, len(self._codes)), np.int64)
        for at, (name, how) in enumerate(self._codes):
            codes[:, at] = encode(table.column(name), how)[0]
        luck = _luck(hashing.mix_keys(codes))
        calm = _bytes(np.zeros(n, np.int8))
        levels = len(self.schema) - table.num_columns - 1
        return pa.RecordBatch.from_arrays([*table.columns, _bytes(luck), *[calm] * levels], schema=self.schema)


def _luck(hashes: Ints) -> np.ndarray[tuple[int], np.dtype[np.int8]]:
    """The trailing zeros of the lower half of a hash; the upper half tells the part of a grid."""
    lower = hashes & np.int64((1 << _MOST) - 1)
    lowest = (lower & -lower).astype(np.float64)
    luck: np.ndarray[tuple[int], np.dtype[np.int8]] = np.frexp(lowest)[1].astype(np.int8) - np.int8(1)
    luck[lower == 0] = _MOST
    return luck


def _bytes(values: np.ndarray[tuple[int], np.dtype[np.int8]]) -> pa.Array:
    return pa.Array.from_buffers(pa.int8(), len(values), [None, pa.py_buffer(values)])


def leveled(table: pa.RecordBatch, levels: Mapping[int, Ints]) -> pa.RecordBatch:
    """Marked rows with other levels under some rules."""
    arrays = list(table.columns)
    for rule, mine in levels.items():
        at = table.schema.get_field_index(mark_of(rule))
        assert numbers(arrays[at], "i").dtype == np.int8
        arrays[at] = _bytes(mine.astype(np.int8))
    return pa.RecordBatch.from_arrays(arrays, schema=table.schema)
