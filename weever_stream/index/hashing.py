"""64-bit hashes of strings and of equality keys, as compiled loops.

`hash_strings` is XXH64 with seed 42 over the UTF-8 bytes: the same number as Spark SQL's `xxhash64(column)`, so that
the JVM and this process agree on it. `mix_keys` folds the codes of several equality columns into one well-spread key;
of a single column it is a bijection, so two different values never share a key. Cost: a few ns a row.

`HASH_BITS` narrows both for tests that force collisions; nothing else may change it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numba import njit, types

if TYPE_CHECKING:
    import pyarrow as pa

    from weever_stream.index.arrays import Bytes, Ints

__all__ = ["HASH_BITS", "hash_bytes", "hash_strings", "keyed", "mix_keys", "prefix_strings", "prefix_wide"]

HASH_BITS = 64

_P1 = np.uint64(0x9E3779B185EBCA87)
_P2 = np.uint64(0xC2B2AE3D27D4EB4F)
_P3 = np.uint64(0x165667B19E3779F9)
_P4 = np.uint64(0x85EBCA77C2B2AE63)
_P5 = np.uint64(0x27D4EB2F165667C5)
_SEED = np.uint64(42)
_SIGN = np.uint64(0x8000000000000000)
_BYTE = np.uint64(0xFF)

_i8 = types.Array(types.int64, 1, "C", readonly=True)
_u1 = types.Array(types.uint8, 1, "C", readonly=True)
_i8_2d = types.Array(types.int64, 2, "C", readonly=True)


@njit(inline="always")
def _rotate(x, by):
    return (x << np.uint64(by)) | (x >> np.uint64(64 - by))


@njit(inline="always")
def _word(data, at, size):
    """`size` bytes as a little-endian number."""
    word = np.uint64(0)
    for i in range(size):
        word |= np.uint64(data[at + i]) << np.uint64(8 * i)
    return word


@njit(inline="always")
def _round(acc, lane):
    return _rotate(acc + lane * _P2, 31) * _P1


@njit(inline="always")
def _xxh64(data, start, stop):
    at = start
    if stop - start >= 32:
        a, b, c, d = _SEED + _P1 + _P2, _SEED + _P2, _SEED, _SEED - _P1
        while at + 32 <= stop:
            a = _round(a, _word(data, at, 8))
            b = _round(b, _word(data, at + 8, 8))
            c = _round(c, _word(data, at + 16, 8))
            d = _round(d, _word(data, at + 24, 8))
            at += 32
        h = _rotate(a, 1) + _rotate(b, 7) + _rotate(c, 12) + _rotate(d, 18)
        for lane in (a, b, c, d):
            h = (h ^ _round(np.uint64(0), lane)) * _P1 + _P4
    else:
        h = _SEED + _P5
    h += np.uint64(stop - start)
    while at + 8 <= stop:
        h = _rotate(h ^ _round(np.uint64(0), _word(data, at, 8)), 27) * _P1 + _P4
        at += 8
    if at + 4 <= stop:
        h = _rotate(h ^ (_word(data, at, 4) * _P1), 23) * _P2 + _P3
        at += 4
    while at < stop:
        h = _rotate(h ^ (np.uint64(data[at]) * _P5), 11) * _P1
        at += 1
    h = (h ^ (h >> np.uint64(33))) * _P2
    h = (h ^ (h >> np.uint64(29))) * _P3
    return h ^ (h >> np.uint64(32))


@njit([types.int64[::1](_i8, _u1)], cache=True, nogil=True)
def _hash_slices(offsets, data):
    out = np.empty(offsets.shape[0] - 1, np.int64)
    for i in range(out.shape[0]):
        out[i] = np.int64(_xxh64(data, offsets[i], offsets[i + 1]))
    return out


@njit([types.int64[::1](_i8, _u1)], cache=True, nogil=True)
def _prefix_slices(offsets, data):
    out = np.empty(offsets.shape[0] - 1, np.int64)
    for i in range(out.shape[0]):
        word = np.uint64(0)
        for j in range(8):
            at = offsets[i] + j
            word <<= np.uint64(8)
            if at < offsets[i + 1]:
                word |= np.uint64(data[at]) & _BYTE
        out[i] = np.int64(word ^ _SIGN)
    return out


@njit([types.int64[::1](_i8_2d)], cache=True, nogil=True)
def _magnitudes(words):
    """256-bit integers (little-endian words) cut to sign, bit length and 54 leading bits: a truncating float."""
    out = np.empty(words.shape[0], np.int64)
    one = np.uint64(1)
    limbs = np.empty(4, np.uint64)
    for i in range(out.shape[0]):
        negative = words[i, 3] < 0
        carry = one
        for w in range(4):
            limbs[w] = np.uint64(words[i, w])
            if negative:
                limbs[w] = ~limbs[w] + carry
                carry = one if carry == one and limbs[w] == np.uint64(0) else np.uint64(0)
        length = 256
        while length > 0 and (limbs[(length - 1) // 64] >> np.uint64((length - 1) % 64)) & one == np.uint64(0):
            length -= 1
        code = np.uint64(length)
        for at in range(length - 2, length - 56, -1):
            bit = np.uint64(0)
            if at >= 0:
                bit = (limbs[at // 64] >> np.uint64(at % 64)) & one
            code = (code << one) | bit
        out[i] = -np.int64(code) if negative else np.int64(code)
    return out


@njit(inline="always")
def _spread(x):
    """Murmur3's finaliser: a bijection of 64 bits that spreads them evenly."""
    x = (x ^ (x >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    x = (x ^ (x >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return x ^ (x >> np.uint64(33))


@njit([types.int64[:, ::1](_i8_2d, _i8, _i8)], cache=True, nogil=True)
def _keyed(codes, equals, stored):
    n = codes.shape[0]
    out = np.zeros((n, 1 + stored.shape[0]), np.int64)
    for i in range(n):
        if equals.shape[0]:
            h = np.uint64(0)
            for c in equals:
                h = _spread((h * _P5) ^ np.uint64(codes[i, c]))
            out[i, 0] = np.int64(h)
        for c in range(stored.shape[0]):
            out[i, 1 + c] = codes[i, stored[c]]
    return out


def _narrow(hashes: Ints) -> Ints:
    return hashes if HASH_BITS == 64 else hashes & np.int64((1 << HASH_BITS) - 1)


def _slices(strings: pa.Array) -> tuple[Ints, Bytes]:
    """Offsets and bytes of an Arrow string array, whatever its offset width and slice."""
    _, offsets, data = strings.buffers()
    kind = np.int64 if str(strings.type).startswith("large") else np.int32
    window = np.frombuffer(offsets, kind)[strings.offset : strings.offset + len(strings) + 1]
    body = np.frombuffer(data, np.uint8) if data is not None and data.size else np.empty(0, np.uint8)
    return window.astype(np.int64), body


def hash_strings(strings: pa.Array) -> Ints:
    """XXH64 of every string; nulls hash as the bytes that lie under them."""
    return _narrow(_hash_slices(*_slices(strings))) if len(strings) else np.empty(0, np.int64)


def hash_bytes(values: Bytes, width: int) -> Ints:
    """XXH64 of every `width` bytes of a flat array."""
    offsets = np.arange(0, len(values) + 1, width, dtype=np.int64)
    hashes: Ints = _hash_slices(offsets, values)
    return _narrow(hashes)


def prefix_strings(strings: pa.Array) -> Ints:
    """The first 8 bytes of every string as a number that keeps their order; shorter strings come before longer ones."""
    codes: Ints = _prefix_slices(*_slices(strings)) if len(strings) else np.empty(0, np.int64)
    return codes


def prefix_wide(words: Ints) -> Ints:
    """A monotone code of 256-bit integers, given as n x 4 little-endian words."""
    codes: Ints = _magnitudes(words)
    return codes


def keyed(codes: Ints, equals: Ints, stored: Ints) -> Ints:
    """Per row of codes: the mixed key of the columns `equals` (0 without any), then the columns `stored`."""
    matrix: Ints = _keyed(codes, equals, stored)
    if HASH_BITS != 64:
        matrix[:, 0] = _narrow(matrix[:, 0])
    return matrix


def mix_keys(codes: Ints) -> Ints:
    """The mixed key of every row of an n x E matrix of equality codes."""
    return np.ascontiguousarray(keyed(codes, np.arange(codes.shape[1]), np.empty(0, np.int64))[:, 0])
