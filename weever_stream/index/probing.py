"""Walking the packed LT-tree: which stored rows satisfy which rules with a probing row.

A *program* is one rule seen from the probing row: predicates `stored code op probing code`, and the gates that both
rows must pass. For all queries q and stored rows r of the same key: (p, q, r) is found if and only if every predicate
of program p holds between them and neither gate is closed. Programs that share a tree share the search for the key;
where it has no rows none of them is looked at. Then each walks down: a node that can match nothing is skipped, one
that matches whole gives its slice without a look at its rows, and the walk goes on only below the others. Every
comparison is an interval [low, high] of the stored code, or the one value that `!=` excludes.

Queries that come in order often repeat the one before (a thousand new rows of fifty states): they repeat its answer.
The walk is one long function on purpose: numba hands arrays to a function by value, and a call per node costs several
times the work of the node.

Cost: nodes visited, about log n + sqrt n per query for two order predicates in Z-order, plus the pairs found.
"""

from __future__ import annotations

import numpy as np
from numba import njit, types

from weever_stream.index.layout import CODES, COLLIDES, EQUALS, FANOUT, GATES, LEAD, LEAF, LEVELS, key_range, sections

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
def _low(op, value):
    """The least stored code that satisfies `stored op value`; of `!=` the value itself."""
    if op == _NE:
        return value
    if op & 1:
        return _LEAST
    return value if op & 2 else value + 1


@njit(inline="always")
def _high(op, value):
    """The greatest stored code that satisfies `stored op value`."""
    if op & 4:
        return _MOST
    return value if op & 2 else value - 1


@njit(inline="always")
def _verdict(least, most, low, high, unequal):
    """Whether none, some or all codes between `least` and `most` satisfy an interval."""
    if unequal:
        if low < least or low > most:
            return _ALL
        return _NONE if least == most else _SOME
    if most < low or least > high:
        return _NONE
    return _ALL if least >= low and most <= high else _SOME


@njit(cache=True)
def _open_programs(q, queries, codes, gates, programs, P, wanted, low, high):
    """The programs that this query can take part in, as bits; fills in the intervals of their predicates."""
    active = 0
    for p in range(P):
        gate = programs[p, 3]
        if not (wanted >> p) & 1:
            continue
        if gates < queries.shape[1] and gate >= 0 and not (queries[q, gates + (gate >> 6)] >> (gate & 63)) & 1:
            continue
        active |= 1 << p
        for k in range(programs[p, 0], programs[p, 1]):
            op, value = programs[k, 1], queries[q, codes + programs[k, 2]]
            low[k], high[k] = _low(op, value), _high(op, value)
            # Nothing is less than the least code, nor greater than the greatest: the interval would wrap around.
            if (op == _LT and value == _LEAST) or (op == _GT and value == _MOST):
                active &= ~(1 << p)
    return active


@njit(cache=True)
def _same_equals(stored, at, queries, q, E):
    same = True
    for e in range(E):
        same &= stored[at + e] == queries[q, 1 + e]
    return same


@njit(cache=True)
def _bound(buf, at, step, low, high, value, after):
    """The first row of a rising column that is not less than a value; `after`: that is greater than it."""
    while low < high:
        middle = (low + high) >> 1
        code = buf[at + middle * step]
        if code < value or (after and code == value):
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True)
def _grown(out, more):
    bigger = np.empty((max(2 * out.shape[0], out.shape[0] + more), 3), np.int32)
    bigger[: out.shape[0]] = out
    return bigger


@njit(
    [types.Tuple((types.int64, types.int64, types.int64, _found))(
        _i8, _u1, _i8_2d, _i4, types.int64, _i8_2d, *[types.int64] * 5, types.int64[::1]
    )],
    cache=True,
    nogil=True,
)  # fmt: skip
def probe_tree(buf, dead, queries, query_rows, n_codes, programs, P, wanted, meets, start, limit, tally):
    """Probes queries from `start` on until about `limit` pairs are found.

    `queries` are entries: key, equality codes, `n_codes` codes, gates. The first P rows of `programs` are programs
    (first predicate, last, stored gate, query gate, how it pairs within one set), the others predicates (stored
    column, op bits, query column). `meets` EVERY is for two different sets of rows; with OTHERS each program follows
    its own rule for pairs within one set. Where `tally` has a place per query nothing is listed: the number of matches
    is added there. Returns the next query, pairs found, nodes visited, and (program, query, row) of each pair.
    """
    keys_at, rows, _, at_equals, at_codes, at_gates, bounds, gate_bounds, levels, directory, _ = sections(buf)
    C, W, E = buf[CODES], buf[GATES], buf[EQUALS]
    n_levels, leaf, fanout = buf[LEVELS], buf[LEAF], buf[FANOUT]
    codes, gates = 1 + E, 1 + E + n_codes
    collides = E > 0 and buf[COLLIDES] == 1
    lead = buf[LEAD]
    low, high = np.empty(programs.shape[0], np.int64), np.empty(programs.shape[0], np.int64)
    spans = np.empty(n_levels, np.int64)
    span = leaf
    for level in range(n_levels):
        spans[level] = span
        span *= fanout
    stack = np.empty((fanout * (n_levels + 1) + 64, 2), np.int64)
    listing, any_dead = tally.shape[0] == 0, dead.shape[0] > 0
    out = np.empty((256, 3), np.int32)
    found, visits, q = 0, 0, start
    g0, g1, last = 0, 0, 0
    begun = 0  # where the pairs of the query before start
    while q < queries.shape[0] and found < limit:
        key = queries[q, 0]
        again = q > start and meets == EVERY
        for c in range(queries.shape[1] if again else 0):
            if queries[q, c] != queries[q - 1, c]:
                again = False
                break
        if again:  # the same question as before has the same answer
            if listing:
                more = found - begun
                if found + more > out.shape[0]:
                    out = _grown(out, more)
                for i in range(more):
                    out[found + i, 0], out[found + i, 1], out[found + i, 2] = out[begun + i, 0], q, out[begun + i, 2]
                begun = found
                found += more
            else:
                tally[q] = tally[q - 1]
                found += tally[q]
            q += 1
            continue
        begun = found
        if q == start or key != last:
            g0, g1 = key_range(buf, keys_at, directory, key)
            last = key
        active = 0
        if g0 < g1 and (collides or not E or _same_equals(buf, at_equals + g0 * E, queries, q, E)):
            active = _open_programs(q, queries, codes, gates, programs, P, wanted, low, high)
        p = -1
        while active:
            p += 1
            if not active & 1:
                active >>= 1
                continue
            active >>= 1
            first_k, last_k, gate = programs[p, 0], programs[p, 1], programs[p, 2] if W else -1
            mode, me = programs[p, 4] if meets == OTHERS else EVERY, query_rows[q]
            # Within a key rows are sorted by the lead column: what it decides needs no walk.
            h0, h1 = g0, g1
            for k in range(first_k if lead >= 0 else last_k, last_k):
                if programs[k, 0] != lead or h0 == h1:
                    continue
                if programs[k, 1] == _NE:
                    least, most = buf[at_codes + h0 * C + lead], buf[at_codes + (h1 - 1) * C + lead]
                    if least == most and most == low[k]:
                        h1 = h0
                elif h1 - h0 > 4 * leaf:
                    h0 = _bound(buf, at_codes + lead, C, h0, h1, low[k], 0)
                    h1 = _bound(buf, at_codes + lead, C, h0, h1, high[k], 1)
            if h0 == h1:
                continue
            # A program that takes every row of a key needs none either.
            level = n_levels - 1 if first_k == last_k and gate < 0 else 0
            while level < n_levels - 1 and (h1 - 1) // spans[level] - h0 // spans[level] >= fanout:
                level += 1
            first, end, top = h0 // spans[level], (h1 - 1) // spans[level] + 1, 0
            while True:
                at_level, span = buf[levels + level], spans[level]
                for block in range(first, end):
                    visits += 1
                    verdict = _ALL
                    if gate >= 0:
                        at = gate_bounds + 2 * ((at_level + block) * W + (gate >> 6))
                        if not (buf[at] >> (gate & 63)) & 1:
                            verdict = _SOME if (buf[at + 1] >> (gate & 63)) & 1 else _NONE
                    at_node = bounds + 2 * (at_level + block) * C
                    for k in range(first_k, last_k):
                        at = at_node + 2 * programs[k, 0]
                        verdict = min(verdict, _verdict(buf[at], buf[at + 1], low[k], high[k], programs[k, 1] == _NE))
                        if verdict == _NONE:
                            break
                    if verdict == _NONE:
                        continue
                    if verdict == _SOME and level > 0:
                        stack[top, 0], stack[top, 1] = level - 1, block
                        top += 1
                        continue
                    begin, stop = max(h0, block * span), min(h1, block * span + span)
                    if not listing and verdict == _ALL and mode == EVERY and not collides and not any_dead:
                        tally[q] += stop - begin
                        found += stop - begin
                        continue
                    if listing and found + stop - begin > out.shape[0]:
                        out = _grown(out, stop - begin)
                    for i in range(begin, stop):
                        if verdict == _SOME:
                            holds = gate < 0 or (buf[at_gates + i * W + (gate >> 6)] >> (gate & 63)) & 1
                            for k in range(first_k, last_k):
                                code = buf[at_codes + i * C + programs[k, 0]]
                                holds = holds and _verdict(code, code, low[k], high[k], programs[k, 1] == _NE) == _ALL
                                if not holds:
                                    break
                            if not holds:
                                continue
                        row = buf[rows + i]
                        if (any_dead and dead[row]) or (mode == OTHERS and row == me) or (mode == HALF and row <= me):
                            continue
                        if collides and not _same_equals(buf, at_equals + i * E, queries, q, E):
                            continue
                        if listing:
                            out[found, 0], out[found, 1], out[found, 2] = p, q, row
                        else:
                            tally[q] += 1
                        found += 1
                if top == 0:
                    break
                top -= 1
                level, block = stack[top, 0], stack[top, 1]
                first = max(block * fanout, h0 // spans[level])
                end = min(block * fanout + fanout, (h1 - 1) // spans[level] + 1)
        q += 1
    return q, found, visits, out[:found]


@njit(
    [types.Tuple((types.int64, types.int64, types.int64, _found))(
        types.int64, _u1, _i8_2d, _i4, types.int64, _i8_2d, _i4, types.int64, types.int64, _i8_2d, *[types.int64] * 5
    )],
    cache=True,
    nogil=True,
)  # fmt: skip
def scan_rows(
    n, dead, stored, stored_rows, stored_codes, queries, query_rows, query_codes, E, programs, P, wanted, meets, start,
    limit,
):  # fmt: skip
    """`probe_tree` over the first n of some unsorted entries: looks at each of them."""
    flat, width = stored.reshape(stored.size), stored.shape[1]
    gated = width > 1 + E + stored_codes
    low, high = np.empty(programs.shape[0], np.int64), np.empty(programs.shape[0], np.int64)
    out = np.empty((64, 3), np.int32)
    found, q = 0, start
    while q < queries.shape[0] and found < limit:
        active = _open_programs(q, queries, 1 + E, 1 + E + query_codes, programs, P, wanted, low, high)
        for i in range(n if active else 0):
            if stored[i, 0] != queries[q, 0] or not _same_equals(flat, i * width + 1, queries, q, E):
                continue
            row = stored_rows[i]
            if dead.shape[0] and dead[row]:
                continue
            for p in range(P):
                gate, mode = programs[p, 2], programs[p, 4] if meets == OTHERS else EVERY
                holds = (active >> p) & 1 and not (mode == OTHERS and row == query_rows[q])
                holds = holds and not (mode == HALF and row <= query_rows[q])
                if holds and gated and gate >= 0:
                    holds = (stored[i, 1 + E + stored_codes + (gate >> 6)] >> (gate & 63)) & 1
                for k in range(programs[p, 0], programs[p, 1]):
                    if not holds:
                        break
                    code = stored[i, 1 + E + programs[k, 0]]
                    holds = _verdict(code, code, low[k], high[k], programs[k, 1] == _NE) == _ALL
                if holds:
                    if found == out.shape[0]:
                        out = _grown(out, 1)
                    out[found, 0], out[found, 1], out[found, 2] = p, q, row
                    found += 1
        q += 1
    return q, found, 0, out[:found]
