"""The packed LT-tree as one int64 array: its sections, and the loops that build and merge it.

One buffer holds a whole index, so it is written, checksummed, mapped and handed to a kernel as a single thing:

    header | keys | rows | order | equals | codes | gates | bounds | gate bounds | level starts | directory | cuts

Rows lie sorted by (key, order). `keys` is the mixed equality key; `equals` holds the equality codes themselves where
the key alone cannot prove equality; `codes` are the columns that the other predicates read; `gates` are bit sets of
the conditions each row meets (filters passed, columns not null). Above them lies a tree of fixed fan-out: per node the
minimum and maximum of every code column, node after node, and the AND and OR of the gates. Weever's LT-set of a node,
all rows with a smaller value, is then a slice and needs no bitmap. `directory` maps the leading bits of a key to where
such keys start: the hash index. `cuts` are the quantiles that the Z-order was made with.

Building and merging cost O(n) here; sorting is done before (see `sorting`). Merging reads two sorted trees once.
"""

from __future__ import annotations

import numpy as np
from numba import njit, types

__all__ = [
    "ARRANGED_AT", "CODES", "COLLIDES", "CUTS", "DIRECTORY_BITS", "EQUALS", "FANOUT", "GATES", "HEADER", "KEYED",
    "LEAD", "LEAF", "LEVELS", "MAGIC", "NODES", "ROWS", "TAG", "VERSION", "ZORDER", "key_range", "merge", "pack",
    "sections", "unpack",
]  # fmt: skip

VERSION = 1
MAGIC = 0x5745_4556_4552_0000 | VERSION  # "WEEVER", then the version
HEADER = 16
# Header words.
(_, ROWS, CODES, GATES, EQUALS, LEAF, FANOUT, LEVELS, DIRECTORY_BITS, LEAD, TAG, CUTS, COLLIDES, NODES, KEYED,
 ARRANGED_AT) = range(HEADER)  # fmt: skip
ZORDER = -2
"""LEAD of a tree in Z-order; otherwise the code column that rows are sorted by within a key, or -1 for none."""

_SIGN = np.uint64(0x8000000000000000)
_i8 = types.Array(types.int64, 1, "C", readonly=True)
_i4 = types.Array(types.int32, 1, "C", readonly=True)
_i8_2d = types.Array(types.int64, 2, "C", readonly=True)
_new = types.int64[::1]


@njit([types.UniTuple(types.int64, 11)(_i8)], inline="always", cache=True)
def sections(buf):
    """Where each section starts, and the end of the last."""
    n, nodes = buf[ROWS], buf[NODES]
    keys = HEADER
    rows = keys + (n if buf[KEYED] else 0)
    order = rows + n
    equals = order + (n if buf[LEAD] == ZORDER else 0)
    codes = equals + n * buf[EQUALS]
    gates = codes + n * buf[CODES]
    bounds = gates + n * buf[GATES]
    gate_bounds = bounds + nodes * buf[CODES] * 2
    levels = gate_bounds + nodes * buf[GATES] * 2
    directory = levels + buf[LEVELS] + 1
    cuts = directory + ((1 << buf[DIRECTORY_BITS]) + 1 if buf[KEYED] else 0)
    return keys, rows, order, equals, codes, gates, bounds, gate_bounds, levels, directory, cuts


@njit(inline="always")
def _bucket(key, bits):
    if bits == 0:
        return 0
    return np.int64((np.uint64(key) ^ _SIGN) >> np.uint64(64 - bits))


@njit([types.UniTuple(types.int64, 2)(_i8, types.int64, types.int64, types.int64)], inline="always", cache=True)
def key_range(buf, keys, directory, key):
    """The slice of rows that carry a key: a directory look-up, a short search, a gallop to the end."""
    if not buf[KEYED]:
        return 0, buf[ROWS]
    bucket = _bucket(key, buf[DIRECTORY_BITS])
    low, high = buf[directory + bucket], buf[directory + bucket + 1]
    end = high
    while low < high:
        middle = (low + high) >> 1
        if buf[keys + middle] < key:
            low = middle + 1
        else:
            high = middle
    if low == end or buf[keys + low] != key:
        return low, low
    start, step = low, 1
    while low + step < end and buf[keys + low + step] == key:
        low += step
        step <<= 1
    high = min(end, low + step)
    while low + 1 < high:
        middle = (low + high) >> 1
        if buf[keys + middle] == key:
            low = middle
        else:
            high = middle
    return start, low + 1


@njit(cache=True)
def _blank(n, n_codes, n_gates, n_equals, keyed, lead, tag, cuts, arranged_at, leaf, fanout):
    """An empty buffer of the right size with its header and level starts filled in."""
    levels, width, nodes = 1, (n + leaf - 1) // leaf, (n + leaf - 1) // leaf
    while width > 1:
        width = (width + fanout - 1) // fanout
        nodes += width
        levels += 1
    bits = 0
    while keyed and (n >> bits) > 2:
        bits += 1
    head = np.zeros(HEADER, np.int64)
    head[0], head[ROWS], head[CODES], head[GATES], head[EQUALS] = MAGIC, n, n_codes, n_gates, n_equals
    head[LEAF], head[FANOUT], head[LEVELS], head[NODES] = leaf, fanout, levels, nodes
    head[DIRECTORY_BITS], head[LEAD], head[TAG], head[CUTS] = bits, lead, tag, cuts.shape[0]
    head[KEYED], head[ARRANGED_AT] = keyed, arranged_at
    where = sections(head)
    buf = np.empty(where[10] + cuts.shape[0], np.int64)
    buf[:HEADER] = head
    buf[where[10] :] = cuts
    width, start = (n + leaf - 1) // leaf, 0
    for level in range(levels):
        buf[where[8] + level] = start
        start += width
        width = (width + fanout - 1) // fanout
    buf[where[8] + levels] = start
    return buf


@njit(cache=True)
def _finish(buf):
    """Fills what is derived from the sorted rows: bounds, gate bounds, directory, and whether keys collide."""
    keys, _, _, equals, codes, gates, bounds, gate_bounds, levels, directory, _ = sections(buf)
    n, C, W, E = buf[ROWS], buf[CODES], buf[GATES], buf[EQUALS]
    leaf, fanout = buf[LEAF], buf[FANOUT]
    for node in range(buf[levels + 1]):
        low, high = node * leaf, min(n, node * leaf + leaf)
        at = bounds + node * C * 2
        for c in range(C):
            least = most = buf[codes + low * C + c]
            for i in range(low + 1, high):
                code = buf[codes + i * C + c]
                least, most = min(least, code), max(most, code)
            buf[at + 2 * c], buf[at + 2 * c + 1] = least, most
        at = gate_bounds + node * W * 2
        for w in range(W):
            every = some = buf[gates + low * W + w]
            for i in range(low + 1, high):
                every &= buf[gates + i * W + w]
                some |= buf[gates + i * W + w]
            buf[at + 2 * w], buf[at + 2 * w + 1] = every, some
    for level in range(1, buf[LEVELS]):
        first, here, end = buf[levels + level - 1], buf[levels + level], buf[levels + level + 1]
        for node in range(end - here):
            low, high = first + node * fanout, min(here, first + node * fanout + fanout)
            at = bounds + (here + node) * C * 2
            for c in range(C):
                least, most = buf[bounds + low * C * 2 + 2 * c], buf[bounds + low * C * 2 + 2 * c + 1]
                for child in range(low + 1, high):
                    least = min(least, buf[bounds + child * C * 2 + 2 * c])
                    most = max(most, buf[bounds + child * C * 2 + 2 * c + 1])
                buf[at + 2 * c], buf[at + 2 * c + 1] = least, most
            at = gate_bounds + (here + node) * W * 2
            for w in range(W):
                every, some = buf[gate_bounds + low * W * 2 + 2 * w], buf[gate_bounds + low * W * 2 + 2 * w + 1]
                for child in range(low + 1, high):
                    every &= buf[gate_bounds + child * W * 2 + 2 * w]
                    some |= buf[gate_bounds + child * W * 2 + 2 * w + 1]
                buf[at + 2 * w], buf[at + 2 * w + 1] = every, some
    if buf[KEYED]:
        bits, bucket = buf[DIRECTORY_BITS], -1
        for i in range(n):
            mine = _bucket(buf[keys + i], bits)
            while bucket < mine:
                bucket += 1
                buf[directory + bucket] = i
            if i and buf[keys + i] == buf[keys + i - 1]:
                for e in range(E):
                    if buf[equals + i * E + e] != buf[equals + (i - 1) * E + e]:
                        buf[COLLIDES] = 1
        while bucket < 1 << bits:
            bucket += 1
            buf[directory + bucket] = n


@njit([_new(_i8, _i8, _i8_2d, _i4, *[types.int64] * 8, _i8)], cache=True, nogil=True)
def pack(perm, order, entries, rows, keyed, E, C, lead, tag, arranged_at, leaf, fanout, cuts):
    """A tree of entries (key, equality codes, codes, gates) in the order of `perm`. `order` is read for ZORDER only."""
    n, W = perm.shape[0], entries.shape[1] - 1 - E - C
    buf = _blank(n, C, W, E, keyed, lead, tag, cuts, arranged_at, leaf, fanout)
    at_keys, at_rows, at_order, at_equals, at_codes, at_gates, _, _, _, _, _ = sections(buf)
    for i in range(n):
        p = perm[i]
        if keyed:
            buf[at_keys + i] = entries[p, 0]
        buf[at_rows + i] = rows[p]
        if lead == ZORDER:
            buf[at_order + i] = order[p]
        for e in range(E):
            buf[at_equals + i * E + e] = entries[p, 1 + e]
        for c in range(C):
            buf[at_codes + i * C + c] = entries[p, 1 + E + c]
        for w in range(W):
            buf[at_gates + i * W + w] = entries[p, 1 + E + C + w]
    _finish(buf)
    return buf


@njit([types.Tuple((types.int64[:, ::1], types.int32[::1]))(_i8)], cache=True, nogil=True)
def unpack(buf):
    """The entries of a tree in its order, and their rows."""
    at_keys, at_rows, _, at_equals, at_codes, at_gates, _, _, _, _, _ = sections(buf)
    n, C, W, E = buf[ROWS], buf[CODES], buf[GATES], buf[EQUALS]
    entries, rows = np.zeros((n, 1 + E + C + W), np.int64), np.empty(n, np.int32)
    for i in range(n):
        if buf[KEYED]:
            entries[i, 0] = buf[at_keys + i]
        rows[i] = buf[at_rows + i]
        for e in range(E):
            entries[i, 1 + e] = buf[at_equals + i * E + e]
        for c in range(C):
            entries[i, 1 + E + c] = buf[at_codes + i * C + c]
        for w in range(W):
            entries[i, 1 + E + C + w] = buf[at_gates + i * W + w]
    return entries, rows


@njit(inline="always")
def _sort_value(buf, order, codes, i):
    if buf[LEAD] == ZORDER:
        return buf[order + i]
    if buf[LEAD] >= 0:
        return buf[codes + i * buf[CODES] + buf[LEAD]]
    return 0


@njit(inline="always")
def _copy_row(out, to, into, source, of, i, row):
    """Copies one row between buffers whose section starts are given, under its new row position."""
    C, W, E = out[CODES], out[GATES], out[EQUALS]
    if out[KEYED]:
        out[into[0] + to] = source[of[0] + i]
    out[into[1] + to] = row
    if out[LEAD] == ZORDER:
        out[into[2] + to] = source[of[2] + i]
    for e in range(E):
        out[into[3] + to * E + e] = source[of[3] + i * E + e]
    for c in range(C):
        out[into[4] + to * C + c] = source[of[4] + i * C + c]
    for w in range(W):
        # A tree whose rows all pass every gate stores none.
        out[into[5] + to * W + w] = source[of[5] + i * W + w] if source[GATES] else -1


@njit(
    [_new(_i8, _i4, types.int64, _i8, _i4, types.int64, types.int64, types.int64)],
    cache=True,
    nogil=True,
)
def merge(a, a_rows, a_shift, b, b_rows, b_shift, leaf, fanout):
    """The tree of two trees with the same arrangement.

    `a_rows[old]` is a row's new position, or -1 to leave it out; where it is empty all rows stay and move by `a_shift`.
    """
    in_a, in_b = sections(a), sections(b)
    n = a[ROWS] + b[ROWS]
    if a_rows.shape[0]:
        for i in range(a[ROWS]):
            n -= a_rows[a[in_a[1] + i]] < 0
    if b_rows.shape[0]:
        for i in range(b[ROWS]):
            n -= b_rows[b[in_b[1] + i]] < 0
    source, of = (a, in_a) if a[CUTS] >= b[CUTS] else (b, in_b)
    cuts = source[of[10] : of[10] + source[CUTS]].copy()
    W = max(a[GATES], b[GATES])
    arranged_at = max(a[ARRANGED_AT], b[ARRANGED_AT])
    out = _blank(n, a[CODES], W, a[EQUALS], a[KEYED], a[LEAD], a[TAG], cuts, arranged_at, leaf, fanout)
    into = sections(out)
    i, j, to = 0, 0, 0
    while i < a[ROWS] or j < b[ROWS]:
        from_a = j >= b[ROWS]
        if not from_a and i < a[ROWS]:
            one = a[in_a[0] + i] if a[KEYED] else 0
            other = b[in_b[0] + j] if b[KEYED] else 0
            if one == other:
                from_a = _sort_value(a, in_a[2], in_a[4], i) <= _sort_value(b, in_b[2], in_b[4], j)
            else:
                from_a = one < other
        if from_a:
            row = a[in_a[1] + i]
            row = a_rows[row] if a_rows.shape[0] else row + a_shift
            if row >= 0:
                _copy_row(out, to, into, a, in_a, i, row)
                to += 1
            i += 1
        else:
            row = b[in_b[1] + j]
            row = b_rows[row] if b_rows.shape[0] else row + b_shift
            if row >= 0:
                _copy_row(out, to, into, b, in_b, j, row)
                to += 1
            j += 1
    _finish(out)
    return out
