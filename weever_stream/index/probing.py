"""Walking the packed LT-tree: which stored rows satisfy which rules with a probing row.

A *program* is one rule seen from the probing row: predicates `stored code op probing code`, and the gates that both
rows must pass. For all queries q and stored rows r of the same key: (p, q, r) is found if and only if every predicate
of program p holds between them and neither gate is closed. All programs that share a tree walk it together: at each
node a program that can match nothing drops out, one that matches everything takes the node's slice without looking at
its rows, and the walk goes on only for the others. Every comparison is an interval [low, high] of the stored code, or
the one value that `!=` excludes.

Cost: nodes visited, about log n + sqrt n per query for two order predicates in Z-order, plus the pairs found.
"""

from __future__ import annotations

import numpy as np
from numba import njit, types

from weever_stream.index.layout import CODES, COLLIDES, EQUALS, FANOUT, GATES, LEAF, LEVELS, ROWS, key_range, sections

__all__ = ["EVERY", "HALF", "MAX_PROGRAMS", "OTHERS", "probe_tree", "scan_rows"]

MAX_PROGRAMS = 62
"""Programs of one walk: one bit each."""
# Which stored rows a query may meet: any, any but itself (same position), or, once per unordered pair, later ones.
EVERY, OTHERS, HALF = 0, 1, 2

_LEAST, _MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max
_NONE, _SOME, _ALL = 0, 1, 2
_LT, _GT, _NE = 1, 4, 5
_i8 = types.Array(types.int64, 1, "C", readonly=True)
_i4 = types.Array(types.int32, 1, "C", readonly=True)
_u1 = types.Array(types.uint8, 1, "C", readonly=True)
_i8_2d = types.Array(types.int64, 2, "C", readonly=True)
_found = types.int32[:, ::1]


@njit(inline="always")
def _low(op, value):  # type: ignore[no-untyped-def]
    """The least stored code that satisfies `stored op value`; of `!=` the value itself."""
    if op == _NE:
        return value
    if op & 1:
        return _LEAST
    return value if op & 2 else value + 1


@njit(inline="always")
def _high(op, value):  # type: ignore[no-untyped-def]
    """The greatest stored code that satisfies `stored op value`."""
    if op & 4:
        return _MOST
    return value if op & 2 else value - 1


@njit(inline="always")
def _verdict(least, most, low, high, unequal):  # type: ignore[no-untyped-def]
    """Whether none, some or all codes between `least` and `most` satisfy an interval."""
    if unequal:
        if low < least or low > most:
            return _ALL
        return _NONE if least == most else _SOME
    if most < low or least > high:
        return _NONE
    return _ALL if least >= low and most <= high else _SOME


@njit(cache=True)
def _open_programs(q, programs, predicates, codes, gates, wanted, low, high):  # type: ignore[no-untyped-def]
    """The programs that this query can take part in, as bits; fills in the intervals of their predicates."""
    active = 0
    for p in range(programs.shape[0]):
        gate = programs[p, 3]
        if not (wanted >> p) & 1:
            continue
        if gates.shape[1] and gate >= 0 and not (gates[q, gate >> 6] >> (gate & 63)) & 1:
            continue
        active |= 1 << p
        for k in range(programs[p, 0], programs[p, 1]):
            op, value = predicates[k, 1], codes[q, predicates[k, 2]]
            low[k], high[k] = _low(op, value), _high(op, value)
            # Nothing is less than the least code, nor greater than the greatest: the interval would wrap around.
            if (op == _LT and value == _LEAST) or (op == _GT and value == _MOST):
                active &= ~(1 << p)
    return active


@njit(cache=True)
def _same_equals(stored, i, equals, q):  # type: ignore[no-untyped-def]
    E = equals.shape[1]
    for e in range(E):
        if stored[i * E + e] != equals[q, e]:
            return False
    return True


@njit(cache=True)
def _grown(out, more):  # type: ignore[no-untyped-def]
    bigger = np.empty((max(2 * out.shape[0], out.shape[0] + more), 3), np.int32)
    bigger[: out.shape[0]] = out
    return bigger


@njit(
    [types.Tuple((types.int64, types.int64, types.int64, _found))(
        _i8, _u1, _i8, _i8_2d, _i8_2d, _i8_2d, _i4, _i8_2d, _i8_2d, *[types.int64] * 4, types.int64[::1]
    )],
    cache=True,
    nogil=True,
)  # fmt: skip
def probe_tree(
    buf, dead, keys, equals, codes, gates, query_rows, programs, predicates, wanted, meets, start, limit, tally
):  # type: ignore[no-untyped-def]
    """Probes queries from `start` on until about `limit` pairs are found.

    `programs` rows are (first predicate, last, stored gate, query gate, meets: how it pairs within one set), and
    `predicates` rows (stored column, op bits, query column). `meets` EVERY is for two different sets of rows; with
    OTHERS each program follows its own rule for pairs within one set. Where `tally` has a place per query nothing is
    listed: the number of matches is added there. Returns the next query, pairs found, nodes visited, and
    (program, query, row) of each pair.
    """
    keys_at, rows, _, at_equals, at_codes, at_gates, bounds, gate_bounds, levels, directory, _ = sections(buf)
    C, W, E = buf[CODES], buf[GATES], buf[EQUALS]
    n_levels, leaf, fanout = buf[LEVELS], buf[LEAF], buf[FANOUT]
    stored_equals = buf[at_equals:at_codes]
    collides = E > 0 and buf[COLLIDES] == 1
    P = programs.shape[0]
    column, unequal = predicates[:, 0].copy(), predicates[:, 1] == _NE
    low, high = np.empty(column.shape[0], np.int64), np.empty(column.shape[0], np.int64)
    first_of, last_of, gate_of, mode_of = programs[:, 0].copy(), programs[:, 1].copy(), programs[:, 2].copy(), programs[:, 4].copy()
    if meets == EVERY:
        mode_of[:] = EVERY
    spans = np.empty(n_levels, np.int64)
    span = leaf
    for level in range(n_levels):
        spans[level] = span
        span *= fanout
    stack = np.empty((fanout * (n_levels + 1) + 64, 3), np.int64)
    listing, any_dead = tally.shape[0] == 0, dead.shape[0] > 0
    out = np.empty((256, 3), np.int32)
    found, visits, q = 0, 0, start
    g0, g1, last = 0, 0, 0
    while q < codes.shape[0] and found < limit:
        key = keys[q] if keys.shape[0] else 0
        if q == start or key != last:
            g0, g1 = key_range(buf, keys_at, directory, key)
            last = key
        active = 0
        if g0 < g1 and (collides or not E or _same_equals(stored_equals, g0, equals, q)):
            active = _open_programs(q, programs, predicates, codes, gates, wanted, low, high)
        if not active:
            q += 1
            continue
        me = query_rows[q]
        level = 0
        while level < n_levels - 1 and (g1 - 1) // spans[level] - g0 // spans[level] >= fanout:
            level += 1
        first, end, top = g0 // spans[level], (g1 - 1) // spans[level] + 1, 0
        while True:
            at_level, span = buf[levels + level], spans[level]
            for block in range(first, end):
                visits += 1
                node = at_level + block
                descend = 0
                for p in range(P):
                    if not (active >> p) & 1:
                        continue
                    verdict, gate = _ALL, gate_of[p]
                    if W and gate >= 0:
                        at = gate_bounds + 2 * (node * W + (gate >> 6))
                        if not (buf[at + 1] >> (gate & 63)) & 1:
                            continue
                        if not (buf[at] >> (gate & 63)) & 1:
                            verdict = _SOME
                    for k in range(first_of[p], last_of[p]):
                        at = bounds + 2 * (node * C + column[k])
                        verdict = min(verdict, _verdict(buf[at], buf[at + 1], low[k], high[k], unequal[k]))
                        if verdict == _NONE:
                            break
                    if verdict == _NONE:
                        continue
                    if verdict == _SOME and level > 0:
                        descend |= 1 << p
                        continue
                    begin, stop, mode = max(g0, block * span), min(g1, block * span + span), mode_of[p]
                    if not listing and verdict == _ALL and mode == EVERY and not collides and not any_dead:
                        tally[q] += stop - begin
                        found += stop - begin
                        continue
                    if listing and found + stop - begin > out.shape[0]:
                        out = _grown(out, stop - begin)
                    for i in range(begin, stop):
                        if verdict == _SOME:
                            holds = not W or gate < 0 or (buf[at_gates + i * W + (gate >> 6)] >> (gate & 63)) & 1
                            for k in range(first_of[p], last_of[p]):
                                code = buf[at_codes + i * C + column[k]]
                                holds = holds and _verdict(code, code, low[k], high[k], unequal[k]) == _ALL
                                if not holds:
                                    break
                            if not holds:
                                continue
                        row = buf[rows + i]
                        if (any_dead and dead[row]) or (mode == OTHERS and row == me) or (mode == HALF and row <= me):
                            continue
                        if collides and not _same_equals(stored_equals, i, equals, q):
                            continue
                        if listing:
                            out[found, 0], out[found, 1], out[found, 2] = p, q, row
                        else:
                            tally[q] += 1
                        found += 1
                if descend:
                    stack[top, 0], stack[top, 1], stack[top, 2] = level - 1, block, descend
                    top += 1
            if top == 0:
                break
            top -= 1
            level, block, active = stack[top, 0], stack[top, 1], stack[top, 2]
            first = max(block * fanout, g0 // spans[level])
            end = min(block * fanout + fanout, (g1 - 1) // spans[level] + 1)
        q += 1
    return q, found, visits, out[:found]


@njit(
    [types.Tuple((types.int64, types.int64, types.int64, _found))(
        types.int64, _u1, _i8, _i8_2d, _i8, _i8, _i4, _i8, _i8_2d, _i8_2d, _i8_2d, _i4,
        _i8_2d, _i8_2d, *[types.int64] * 4,
    )],
    cache=True,
    nogil=True,
)  # fmt: skip
def scan_rows(
    n, dead, stored_keys, stored_equals, stored_codes, stored_gates, stored_rows, keys, equals, codes, gates, query_rows,
    programs, predicates, wanted, meets, start, limit,
):  # type: ignore[no-untyped-def]  # fmt: skip
    """`probe_tree` over a few unsorted rows: looks at each of them. Codes and gates of the stored rows are flat."""
    C = stored_codes.shape[0] // max(1, stored_rows.shape[0])
    W = stored_gates.shape[0] // max(1, stored_rows.shape[0])
    flat_equals = stored_equals.reshape(stored_equals.size)
    unequal = predicates[:, 1] == _NE
    low, high = np.empty(predicates.shape[0], np.int64), np.empty(predicates.shape[0], np.int64)
    out = np.empty((64, 3), np.int32)
    found, q = 0, start
    while q < codes.shape[0] and found < limit:
        active = _open_programs(q, programs, predicates, codes, gates, wanted, low, high)
        for i in range(n if active else 0):
            if keys.shape[0] and stored_keys[i] != keys[q]:
                continue
            row = stored_rows[i]
            if (dead.shape[0] and dead[row]) or not _same_equals(flat_equals, i, equals, q):
                continue
            for p in range(programs.shape[0]):
                gate, mode = programs[p, 2], programs[p, 4] if meets == OTHERS else EVERY
                holds = (active >> p) & 1 and not (mode == OTHERS and row == query_rows[q])
                holds = holds and not (mode == HALF and row <= query_rows[q])
                if holds and W and gate >= 0:
                    holds = (stored_gates[i * W + (gate >> 6)] >> (gate & 63)) & 1
                for k in range(programs[p, 0], programs[p, 1]):
                    if not holds:
                        break
                    code = stored_codes[i * C + predicates[k, 0]]
                    holds = _verdict(code, code, low[k], high[k], unequal[k]) == _ALL
                if holds:
                    if found == out.shape[0]:
                        out = _grown(out, 1)
                    out[found, 0], out[found, 1], out[found, 2] = p, q, row
                    found += 1
        q += 1
    return q, found, 0, out[:found]
