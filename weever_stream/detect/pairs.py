"""Pairs on the wire: what a shard found, in few bytes, to be written out in full only where it is needed.

A piece holds the rows that its pairs are made of, each once, and two positions a pair; keys, values and ids are written
when it is unpacked. Pairs of a symmetric rule stand with the smaller key on the left; a family that looks at ordered
pairs finds them twice and packs the one that stands right. Cost: linear in rows and pairs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from weever_stream.detect.rows import joined
from weever_stream.detect.sections import Format, ipc, pieces, read_ipc, unpacked
from weever_stream.detect.texts import json_objects, keys_of
from weever_stream.detect.violations import left_is_greater, named
from weever_stream.index.arrays import as_arrow

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from weever_stream.detect.families import FamilyPlan
    from weever_stream.detect.found import Found
    from weever_stream.detect.sections import Section
    from weever_stream.index.arrays import Ints
    from weever_stream.rules.model import Rule

__all__ = ["PAIRS_A_PIECE", "Packed", "pack_pairs", "unpack_pairs"]

PAIRS_A_PIECE = 1 << 16
_BYTES_A_PIECE = 64 << 20
"""What the pairs of a piece may take when they are written out, about: texts of one column have a limit of 2 GB."""
_FORMAT = Format(b"WEEVERPA", 1, "a piece of pairs", "this is an error of ours; please report it")


_BYTES_A_PAIR = 200
"""Of a violation that is written out, besides keys and values: id, fingerprint, severity, offsets."""


class Packed(NamedTuple):
    """A piece of pairs."""

    pairs: int
    body: bytes
    written: int
    """Bytes that the piece takes when it is unpacked, about. A row that is in many pairs is written with each."""


def pack_pairs(found: Found, family: FamilyPlan) -> Iterator[Packed]:
    """Pieces of bounded size."""
    for at in range(0, len(found), PAIRS_A_PIECE):
        yield from _piece(found, family, at, min(at + PAIRS_A_PIECE, len(found)))


def _piece(found: Found, family: FamilyPlan, begin: int, end: int) -> Iterator[Packed]:
    """Some of the pairs; in two halves if they would be too many bytes when they are written out."""
    rule, key = family.routed.rules[found.rule].rule, family.routed.key
    columns = [*key, *(name for name in rule.columns if name not in key)]
    ours, left = np.unique(found.left_rows[begin:end], return_inverse=True)
    rows, sides = found.left.take(ours, columns), [("left", left)]
    if found.right is not None and found.right_rows is not None:
        theirs, right = np.unique(found.right_rows[begin:end], return_inverse=True)
        rows = joined([rows, found.right.take(theirs, columns)])
        sides.append(("right", right + len(ours)))
    if end - begin > 1 and _bytes_of(rows, sides) > _BYTES_A_PIECE:
        middle = (begin + end) // 2
        yield from _piece(found, family, begin, middle)
        yield from _piece(found, family, middle, end)
        return
    if rule.symmetric and len(sides) == 2:
        left, right = _smaller_left(rows.select(list(key)), sides[0][1], sides[1][1], key, drop=family.roles)
        sides = [("left", left), ("right", right)]
    if pairs := len(sides[0][1]):
        body = _packed(rows, [(name, side.astype(np.int32).tobytes()) for name, side in sides])
        # Keys and values are texts when they are written out, and values have names.
        names = len(rule.name) + len(sides) * sum(len(name) + 4 for name in rule.columns)
        yield Packed(pairs, body, pairs * (_BYTES_A_PAIR + names) + 2 * _bytes_of(rows, sides))


def _bytes_of(rows: pa.RecordBatch, sides: list[tuple[str, Ints]]) -> int:
    """The bytes of the rows of all pairs, about. One long text counts as often as it is in a pair."""
    often = np.bincount(np.concatenate([side for _, side in sides]), minlength=rows.num_rows)
    total = 0
    for column in rows.columns:
        if pa.types.is_dictionary(column.type):
            column = column.dictionary_decode()
        if _is_text(column.type):
            lengths = pc.fill_null(pc.binary_length(column), 0).to_numpy(zero_copy_only=False)
            total += int(np.dot(lengths, often))
        else:
            total += column.nbytes * int(often.sum()) // rows.num_rows
    return total


def _is_text(kind: pa.DataType) -> bool:
    return bool(
        pa.types.is_string(kind)
        or pa.types.is_large_string(kind)
        or pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
    )


def _smaller_left(
    keys: pa.RecordBatch, left: Ints, right: Ints, key: Sequence[str], *, drop: bool
) -> tuple[Ints, Ints]:
    """Pairs with the smaller key on the left: others are turned, or left out where both orders are found."""
    greater = left_is_greater(keys.take(as_arrow(left)), keys.take(as_arrow(right)), key)
    if drop:
        return left[~greater], right[~greater]
    return np.where(greater, right, left), np.where(greater, left, right)


def _packed(rows: pa.RecordBatch, places: list[tuple[str, bytes]]) -> bytes:
    sections: list[tuple[str, Section]] = [("rows", ipc(rows)), *places]
    return b"".join(pieces(_FORMAT, {}, sections))


def unpack_pairs(rule: Rule, key: Sequence[str], change: str, body: bytes) -> pa.RecordBatch:
    """A piece as the violations of a rule, with `violations.OUTPUT_SCHEMA`."""
    _, (packed, *sides) = unpacked(_FORMAT, "a piece of pairs", body, trusted=True)
    rows = read_ipc(packed)
    keys, values = keys_of(rows, key), json_objects(rows, rule.columns)
    places = [as_arrow(np.frombuffer(side, np.int32)) for side in sides]
    left_key, left_values = keys.take(places[0]), values.take(places[0])
    if len(places) == 1:
        absent = pa.nulls(len(left_key), pa.large_string())
        return named(rule, change, left_key, absent, left_values, absent)
    return named(rule, change, left_key, keys.take(places[1]), left_values, values.take(places[1]))
