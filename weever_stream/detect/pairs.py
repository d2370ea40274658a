"""Pairs on the wire: what a shard found, in few bytes, to be written out in full only where it is needed.

A piece holds the rows that its pairs are made of, each once, and two positions a pair; keys, values and ids are written
when it is unpacked. Pairs of a symmetric rule stand with the smaller key on the left; a family that looks at ordered
pairs finds them twice and packs the one that stands right. Cost: linear in rows and pairs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

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
    from weever_stream.rules.model import Rule

__all__ = ["PAIRS_A_PIECE", "pack_pairs", "unpack_pairs"]

PAIRS_A_PIECE = 1 << 16
_FORMAT = Format(b"WEEVERPA", 1, "a piece of pairs", "this is an error of ours; please report it")


def pack_pairs(found: Found, family: FamilyPlan) -> Iterator[tuple[int, bytes]]:
    """Pieces of bounded size, each with its number of pairs."""
    rule = family.routed.rules[found.rule].rule
    key = family.routed.key
    columns = [*key, *(name for name in rule.columns if name not in key)]
    for at in range(0, len(found), PAIRS_A_PIECE):
        some = slice(at, at + PAIRS_A_PIECE)
        ours, left = np.unique(found.left_rows[some], return_inverse=True)
        rows = found.left.take(ours, columns)
        if found.right is None or found.right_rows is None:
            yield len(left), _packed(rows, [("left", left.astype(np.int32).tobytes())])
            continue
        theirs, right = np.unique(found.right_rows[some], return_inverse=True)
        rows = joined([rows, found.right.take(theirs, columns)])
        right = right + len(ours)
        if rule.symmetric:
            keys = rows.select(list(key))
            greater = left_is_greater(keys.take(as_arrow(left)), keys.take(as_arrow(right)), key)
            if family.roles:
                left, right = left[~greater], right[~greater]
            else:
                left, right = np.where(greater, right, left), np.where(greater, left, right)
        if len(left):
            both = [("left", left.astype(np.int32).tobytes()), ("right", right.astype(np.int32).tobytes())]
            yield len(left), _packed(rows, both)


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
