"""Radix sorting of int64 codes and the Z-order of several columns, as compiled loops.

`sort_rows` gives the permutation that sorts rows by (key, order): least significant digits first, digits that all rows
share are skipped, so narrow codes cost few passes. `z_order` interleaves the quantile ranks of the code columns, the
most significant bits first: rows near each other in every column come to lie near each other in the run.
"""

from __future__ import annotations

import numpy as np
from numba import njit, types

__all__ = ["quantile_cuts", "sort_rows", "z_order"]

_SIGN = np.uint64(0x8000000000000000)
_i8 = types.Array(types.int64, 1, "C", readonly=True)
_i8_2d = types.Array(types.int64, 2, "C", readonly=True)


@njit(cache=True)
def _sort_by(codes, perm, scratch):
    """Reorders `perm` so that its codes rise; stable. Returns the two buffers, the sorted one first."""
    n = perm.shape[0]
    width = 8 if n < 8192 else 11
    size = 1 << width
    digits = (63 + width) // width
    counts = np.zeros((digits, size), np.int64)
    mask = np.uint64(size - 1)
    for i in range(n):
        word = np.uint64(codes[i]) ^ _SIGN
        for d in range(digits):
            counts[d, np.int64((word >> np.uint64(d * width)) & mask)] += 1
    first = np.uint64(codes[0]) ^ _SIGN
    for d in range(digits):
        shift = np.uint64(d * width)
        if counts[d, np.int64((first >> shift) & mask)] == n:
            continue
        total = 0
        for b in range(size):
            here = counts[d, b]
            counts[d, b] = total
            total += here
        for i in range(n):
            p = perm[i]
            digit = np.int64(((np.uint64(codes[p]) ^ _SIGN) >> shift) & mask)
            scratch[counts[d, digit]] = p
            counts[d, digit] += 1
        perm, scratch = scratch, perm
    return perm, scratch


@njit([types.int64[::1](_i8, _i8)], cache=True, nogil=True)
def sort_rows(keys, order):
    """The stable permutation that sorts by key, then by order. An empty array stands for equal values throughout."""
    n = max(keys.shape[0], order.shape[0])
    perm = np.arange(n)
    if n < 2:
        return perm
    scratch = np.empty(n, np.int64)
    if order.shape[0]:
        perm, scratch = _sort_by(order, perm, scratch)
    if keys.shape[0]:
        perm, scratch = _sort_by(keys, perm, scratch)
    return perm


@njit([types.int64[::1](_i8_2d, types.int64)], cache=True, nogil=True)
def quantile_cuts(codes, bits):
    """Per column the 2^bits - 1 values that cut a sample of the rows into equal parts, column after column."""
    n, width = codes.shape
    pieces = 1 << bits
    sample = min(n, 32 * pieces)
    cuts = np.empty(width * (pieces - 1), np.int64)
    taken = np.empty(sample, np.int64)
    for c in range(width):
        for i in range(sample):
            taken[i] = codes[i * n // sample, c]
        taken.sort()
        for k in range(1, pieces):
            cuts[c * (pieces - 1) + k - 1] = taken[k * sample // pieces]
    return cuts


@njit([types.int64[::1](_i8_2d, _i8)], cache=True, nogil=True)
def z_order(codes, cuts):
    """The Z-order code of every row under the given cuts."""
    n, width = codes.shape
    step = cuts.shape[0] // width
    bits = 0
    while (1 << bits) < step + 1:
        bits += 1
    out = np.zeros(n, np.int64)
    for i in range(n):
        for c in range(width):
            low, high, value = 0, step, codes[i, c]
            while low < high:
                middle = (low + high) >> 1
                if cuts[c * step + middle] <= value:
                    low = middle + 1
                else:
                    high = middle
            for b in range(bits):
                out[i] |= ((low >> b) & 1) << (b * width + width - 1 - c)
    return out
