"""Hashes and prefixes against references written down here.

Catches: a hash that differs from Spark's `xxhash64` (the JVM would route a row elsewhere), reads past a string, or
depends on how the column is sliced; mixed keys of one column that collide; prefixes that do not keep the order.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from weever_stream.index.hashing import hash_bytes, hash_strings, mix_keys, prefix_strings, prefix_wide

MASK = 2**64 - 1
P1, P2, P3, P4, P5 = (
    0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5,
)  # fmt: skip
texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=80)
whole = st.integers(-(2**63), 2**63 - 1)


def rotate(x: int, by: int) -> int:
    return (x << by | x >> (64 - by)) & MASK


def xxh64(data: bytes, seed: int) -> int:
    """XXH64 by its specification."""

    def step(acc: int, lane: int) -> int:
        return rotate((acc + lane * P2) & MASK, 31) * P1 & MASK

    at = 0
    if len(data) >= 32:
        lanes = [(seed + P1 + P2) & MASK, (seed + P2) & MASK, seed, (seed - P1) & MASK]
        while at + 32 <= len(data):
            for i in range(4):
                lanes[i] = step(lanes[i], int.from_bytes(data[at + 8 * i : at + 8 * i + 8], "little"))
            at += 32
        h = sum(rotate(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & MASK
        for lane in lanes:
            h = ((h ^ step(0, lane)) * P1 + P4) & MASK
    else:
        h = (seed + P5) & MASK
    h = (h + len(data)) & MASK
    while at + 8 <= len(data):
        h = (rotate(h ^ step(0, int.from_bytes(data[at : at + 8], "little")), 27) * P1 + P4) & MASK
        at += 8
    if at + 4 <= len(data):
        h = (rotate(h ^ int.from_bytes(data[at : at + 4], "little") * P1 & MASK, 23) * P2 + P3) & MASK
        at += 4
    for byte in data[at:]:
        h = rotate(h ^ byte * P5 & MASK, 11) * P1 & MASK
    h = (h ^ h >> 33) * P2 & MASK
    h = (h ^ h >> 29) * P3 & MASK
    return h ^ h >> 32


def signed(x: int) -> int:
    return x - 2**64 if x >= 2**63 else x


def test_the_reference_gives_the_published_hashes():
    assert xxh64(b"", 0) == 0xEF46DB3751D8E999
    assert xxh64(b"a", 0) == 0xD24EC4F1A98C6E5B
    assert xxh64(b"abc", 0) == 0x44BC2CF5AD770999


@settings(max_examples=60)
@given(st.lists(texts, max_size=8), st.integers(0, 8), st.booleans())
def test_strings_hash_as_spark_hashes_them(values: list[str], start: int, large: bool):
    array = pa.array(values, pa.large_string() if large else pa.string()).slice(start)
    assert hash_strings(array).tolist() == [signed(xxh64(value.encode(), 42)) for value in values[start:]]


@settings(max_examples=30)
@given(st.lists(st.binary(min_size=32, max_size=32), max_size=6))
def test_wide_numbers_hash_by_their_bytes(values: list[bytes]):
    flat = np.frombuffer(b"".join(values), np.uint8)
    assert hash_bytes(flat, 32).tolist() == [signed(xxh64(value, 42)) for value in values]


@settings(max_examples=60)
@given(st.lists(texts, max_size=10), st.integers(0, 10))
def test_a_prefix_never_turns_the_order_of_strings(values: list[str], start: int):
    values = [*values, "", "\0", "\0\0", "12345678", "123456789", "12345678\0"]
    codes = prefix_strings(pa.array(values).slice(start)).tolist()
    kept = [value.encode() for value in values[start:]]
    for one, its_code in zip(kept, codes, strict=True):
        for other, other_code in zip(kept, codes, strict=True):
            assert one > other or its_code <= other_code
            assert one[:8].rstrip(b"\0") == other[:8].rstrip(b"\0") or its_code != other_code


@settings(max_examples=60)
@given(st.lists(st.integers(-(2**255), 2**255 - 1) | whole | st.integers(-9, 9), max_size=12))
def test_a_prefix_never_turns_the_order_of_wide_numbers(values: list[int]):
    values = [*values, 0, 1, -1, 2**64, -(2**64), 2**128 - 1, 2**255 - 1, -(2**255) + 1]
    words = np.frombuffer(b"".join(v.to_bytes(32, "little", signed=True) for v in values), np.int64).reshape(-1, 4)
    codes = prefix_wide(words).tolist()
    for one, its_code in zip(values, codes, strict=True):
        for other, other_code in zip(values, codes, strict=True):
            assert one > other or its_code <= other_code
            assert abs(one) >= 2**53 or one == other or its_code != other_code, "small numbers keep all their digits"


@settings(max_examples=30)
@given(st.sets(whole | st.integers(-5, 5), max_size=30))
def test_the_key_of_one_column_is_never_shared(values: set[int]):
    keys = mix_keys(np.array(sorted(values), np.int64).reshape(-1, 1))
    assert len(set(keys.tolist())) == len(values)


def test_keys_of_several_columns_depend_on_all_of_them_and_their_order():
    codes = np.array([[a, b, c] for a in range(12) for b in range(12) for c in range(12)], np.int64)
    keys = mix_keys(codes)
    assert len(set(keys.tolist())) == len(codes)
    buckets = np.bincount((keys.astype(np.uint64) >> np.uint64(60)).astype(np.int64), minlength=16)
    assert buckets.min() > len(codes) / 16 / 2, "the leading bits, which find a bucket, are spread"
