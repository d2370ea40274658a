"""The baseline that `Detector` is held against: a bare packed tree in a bare loop, inserts only.

It is the least that finds every pair of one rule as rows arrive: sort a batch by (equality key, Z-order of the other
columns), build min-max boxes over leaves of 16 rows with a fan-out of 8, probe the batch against every run held and
against itself, merge runs as an LSM tree does. It has no keys, no sequences, no deletes, no types, no nulls and one
rule; a hash of the equality columns stands for their values. Its columns are stacked into 64-bit matrices before the
clock starts. What `Detector` costs beyond it is the price of all that.

Promises: the pairs of `reference.json`, and a cost that does not change, so that ratios can be compared over time.
"""

from __future__ import annotations

from time import process_time
from typing import Any

import numba as nb
import numpy as np

from benchmarks.workloads import Workload

__all__ = ["Stream"]

LEAF, FANOUT = 16, 8
_OPERATORS = {"=": 0, "!=": 1, "<": 2, "<=": 3, ">": 4, ">=": 5}
_MIRRORED = {0: 0, 1: 1, 2: 4, 3: 5, 4: 2, 5: 3}
_PAIRS_AT_ONCE = 1 << 22
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


@nb.njit(inline="always")
def _box(op, value, low, high):
    """Of stored values in [low, high], how many stand in the relation to the value: 0 none, 1 some, 2 all."""
    if op == 0:
        if value < low or value > high:
            return 0
        return 2 if low == high else 1
    if op == 1:
        if low == high:
            return 0 if low == value else 2
        return 2 if (value < low or value > high) else 1
    if op == 2:
        if low >= value:
            return 0
        return 2 if high < value else 1
    if op == 3:
        if low > value:
            return 0
        return 2 if high <= value else 1
    if op == 4:
        if high <= value:
            return 0
        return 2 if low > value else 1
    if high < value:
        return 0
    return 2 if low >= value else 1


@nb.njit(inline="always")
def _holds(op, stored, value):
    if op == 0:
        return stored == value
    if op == 1:
        return stored != value
    if op == 2:
        return stored < value
    if op == 3:
        return stored <= value
    if op == 4:
        return stored > value
    return stored >= value


@nb.njit(cache=True)
def _boxes(rows, n):
    """Minimum and maximum of each column per node, level after level, and where the levels begin."""
    columns = rows.shape[1]
    levels, nodes = 1, (n + LEAF - 1) // LEAF
    total = nodes
    while nodes > 1:
        nodes = (nodes + FANOUT - 1) // FANOUT
        total += nodes
        levels += 1
    starts = np.zeros(levels + 1, np.int64)
    nodes = (n + LEAF - 1) // LEAF
    for level in range(levels):
        starts[level + 1] = starts[level] + nodes
        nodes = (nodes + FANOUT - 1) // FANOUT
    bounds = np.empty((total, columns, 2), np.int64)
    for node in range(starts[1]):
        first = node * LEAF
        last = min(n, first + LEAF)
        for c in range(columns):
            low = rows[first, c]
            high = low
            for i in range(first + 1, last):
                value = rows[i, c]
                if value < low:
                    low = value
                if value > high:
                    high = value
            bounds[node, c, 0] = low
            bounds[node, c, 1] = high
    for level in range(1, levels):
        below = starts[level - 1]
        for node in range(starts[level + 1] - starts[level]):
            first = node * FANOUT
            last = min(starts[level] - below, first + FANOUT)
            for c in range(columns):
                low = bounds[below + first, c, 0]
                high = bounds[below + first, c, 1]
                for i in range(below + first + 1, below + last):
                    if bounds[i, c, 0] < low:
                        low = bounds[i, c, 0]
                    if bounds[i, c, 1] > high:
                        high = bounds[i, c, 1]
                bounds[starts[level] + node, c, 0] = low
                bounds[starts[level] + node, c, 1] = high
    return bounds, starts


@nb.njit(cache=True)
def _probe(keys, rows, bounds, starts, n, query_keys, query_rows, operators, out_query, out_row):
    """Writes every pair of a query and a stored row that satisfies all predicates; returns how many there are."""
    predicates = operators.shape[0]
    levels = starts.shape[0] - 1
    found = 0
    room = out_query.shape[0]
    stack_level = np.empty(512, np.int64)
    stack_node = np.empty(512, np.int64)
    spans = np.empty(levels, np.int64)
    span = LEAF
    for level in range(levels):
        spans[level] = span
        span *= FANOUT
    last_key = np.int64(-9223372036854775808)
    begin = 0
    end = 0
    for q in range(query_keys.shape[0]):
        key = query_keys[q]
        if q == 0 or key != last_key:
            begin = np.searchsorted(keys, key)
            end = begin
            if begin < n and keys[begin] == key:
                end = np.searchsorted(keys, key, side="right")
            last_key = key
        if begin == end:
            continue
        level = 0
        while level < levels - 1 and (end - 1) // spans[level] - begin // spans[level] >= FANOUT:
            level += 1
        depth = 0
        first = begin // spans[level]
        last = (end - 1) // spans[level] + 1
        while True:
            for node in range(first, last):
                at = starts[level] + node
                relation = 2
                for p in range(predicates):
                    one = _box(operators[p], query_rows[q, p], bounds[at, p, 0], bounds[at, p, 1])
                    if one < relation:
                        relation = one
                    if one == 0:
                        break
                if relation == 0:
                    continue
                if relation == 1 and level > 0:
                    stack_level[depth] = level
                    stack_node[depth] = node
                    depth += 1
                    continue
                low = max(node * spans[level], begin)
                high = min(node * spans[level] + spans[level], end)
                if relation == 2:
                    for i in range(low, high):
                        if found < room:
                            out_query[found] = q
                            out_row[found] = i
                        found += 1
                else:
                    for i in range(low, high):
                        holds = True
                        for p in range(predicates):
                            if not _holds(operators[p], rows[i, p], query_rows[q, p]):
                                holds = False
                                break
                        if holds:
                            if found < room:
                                out_query[found] = q
                                out_row[found] = i
                            found += 1
            if depth == 0:
                break
            depth -= 1
            level = stack_level[depth] - 1
            node = stack_node[depth]
            first = max(node * FANOUT, begin // spans[level])
            last = min(node * FANOUT + FANOUT, (end - 1) // spans[level] + 1)
    return found


def _z_order(columns: list[Any]) -> Any:
    """The interleaved bits of the columns' ranks."""
    n, count = len(columns[0]), len(columns)
    bits, needed = 62 // count, max(1, int(n - 1).bit_length())
    out = np.zeros(n, np.uint64)
    for at, column in enumerate(columns):
        rank = (np.searchsorted(np.sort(column), column) >> max(0, needed - bits)).astype(np.uint64)
        for bit in range(min(bits, needed)):
            out |= ((rank >> np.uint64(bit)) & np.uint64(1)) << np.uint64(bit * count + at)
    return out


def _hashed(columns: list[Any], n: int) -> Any:
    if not columns:
        return np.zeros(n, np.int64)
    out = np.zeros(n, np.uint64)
    for column in columns:
        out = (out ^ column.astype(np.uint64)) * _GOLDEN
        out ^= out >> np.uint64(29)
    return out.astype(np.int64)


class _Run:
    """An immutable sorted set of rows and its tree."""

    def __init__(self, keys: Any, rows: Any, ids: Any) -> None:
        columns = rows.shape[1]
        if columns == 0:
            order = np.argsort(keys, kind="stable")
        elif columns == 1:
            order = np.lexsort((rows[:, 0], keys))
        else:
            order = np.lexsort((_z_order([rows[:, c] for c in range(columns)]), keys))
        self.keys, self.rows, self.ids, self.n = keys[order], rows[order], ids[order], len(keys)
        if columns:
            self.bounds, self.starts = _boxes(self.rows, self.n)
        else:
            leaves = (self.n + LEAF - 1) // LEAF
            self.bounds, self.starts = np.zeros((leaves, 0, 2), np.int64), np.array([0, leaves])


class Stream:
    """One rule over rows that arrive in batches. `pairs` are the ordered pairs found so far."""

    def __init__(self, rule: Workload, columns: dict[str, Any]) -> None:
        n = len(next(iter(columns.values())))
        equal = [p for p in rule.predicates if p[1] == "="]
        other = [p for p in rule.predicates if p[1] != "="]
        self._one_side = all(left == right for left, _, right in rule.predicates)
        self._symmetric = self._one_side and all(op in ("=", "!=") for _, op, _ in rule.predicates)
        self._meets_itself = not other or rule.name == "c6"
        self._keys = [_hashed([columns[p[side]] for p in equal], n) for side in (0, 2)]
        self._rows = [_stacked([columns[p[side]] for p in other], n) for side in (0, 2)]
        forward = np.array([_OPERATORS[op] for _, op, _ in other], np.int64)
        mirrored = np.array([_MIRRORED[_OPERATORS[op]] for _, op, _ in other], np.int64)
        self._operators = (forward, mirrored)
        self._ids = np.arange(n)
        self._out = np.empty(_PAIRS_AT_ONCE, np.int64), np.empty(_PAIRS_AT_ONCE, np.int64)
        self._right: list[_Run] = []
        self._left = self._right if self._one_side else []
        self.pairs = 0
        self._find(self._batch(1, slice(0, 50)), self._batch(0, slice(0, 5)), mirrored)

    def insert(self, start: int, stop: int) -> None:
        """Takes the rows of one batch in."""
        some = slice(start, min(stop, len(self._ids)))
        right = self._batch(1, some)
        left = right if self._one_side else self._batch(0, some)
        forward, mirrored = self._operators
        for run in self._right:
            self.pairs += self._find(run, left, mirrored) * (2 if self._symmetric else 1)
        if not self._symmetric:
            for run in self._left:
                self.pairs += self._find(run, right, forward)
        self.pairs += self._find(right, left, mirrored)
        if self._meets_itself:
            self.pairs -= some.stop - some.start
        _push(self._right, right)
        if not self._one_side:
            _push(self._left, left)

    def seconds(self, batch: int) -> float:
        """CPU seconds for all rows in batches."""
        began = process_time()
        for start in range(0, len(self._ids), batch):
            self.insert(start, start + batch)
        return process_time() - began

    def _batch(self, side: int, some: slice) -> _Run:
        return _Run(self._keys[side][some], self._rows[side][some], self._ids[some])

    def _find(self, run: _Run, queries: _Run, operators: Any) -> int:
        found = _probe(
            run.keys, run.rows, run.bounds, run.starts, run.n, queries.keys, queries.rows, operators, *self._out
        )
        assert found <= _PAIRS_AT_ONCE, "more pairs in a probe than there is room for"
        return int(found)


def _stacked(columns: list[Any], n: int) -> Any:
    return np.stack(columns, 1).astype(np.int64) if columns else np.zeros((n, 0), np.int64)


def _push(forest: list[_Run], run: _Run) -> None:
    """Adds a run; merges while the one before is less than twice as large."""
    forest.append(run)
    while len(forest) > 1 and forest[-2].n < 2 * forest[-1].n:
        newer, older = forest.pop(), forest.pop()
        parts = [(older.keys, newer.keys), (older.rows, newer.rows), (older.ids, newer.ids)]
        forest.append(_Run(*(np.concatenate(part) for part in parts)))
