"""The LT-tree over one side's rows: build, merge, probe, check.

A `Tree` is immutable. Its law: for all entries built or merged in and not left out since, `probe` finds exactly the
pairs that satisfy a program (see `probing`). `Entries` is a set of rows as one side of a family sees them, the same
shape for rows that are stored and rows that probe.

Costs: build O(n) after a radix sort; merge O(n), reading both trees once; probe by nodes visited and pairs found.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from weever_stream.errors import StateError
from weever_stream.index import layout
from weever_stream.index.layout import HEADER, ZORDER
from weever_stream.index.probing import EVERY, OTHERS, probe_tree
from weever_stream.index.sorting import sort_rows, z_order

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from weever_stream.index.arrays import Bytes, Ints, Rows

__all__ = ["ALIVE", "FANOUT", "LEAF", "PAIRS_AT_ONCE", "Arrangement", "Entries", "Kept", "Pairs", "Programs", "Tree"]

LEAF, FANOUT = 16, 8
PAIRS_AT_ONCE = 1 << 20
"""About how many pairs one step of a probe lists before it hands them out."""
ALIVE: Bytes = np.empty(0, np.uint8)
"""No row is dead."""
_FEW = 8
_NO_LIMIT = np.iinfo(np.int64).max
_NO_TALLY: Ints = np.empty(0, np.int64)
_NO_CUTS: Ints = np.empty(0, np.int64)
_NO_ORDER: Ints = np.empty(0, np.int64)


@dataclass(frozen=True)
class Programs:
    """Rules as seen from one probing side, packed for the kernels (see `probing.probe_tree`)."""

    heads: Ints
    """P x 5: first predicate, last predicate, stored gate or -1, query gate or -1, how it pairs within one set."""
    predicates: Ints
    """K x 3: stored code column, op bits, query code column."""
    packed: Ints = field(init=False, repr=False)
    """Both in one array, heads first, as the kernels read them."""

    def __post_init__(self) -> None:
        packed = np.zeros((len(self.heads) + len(self.predicates), 5), np.int64)
        packed[: len(self.heads)] = self.heads
        packed[: len(self.heads), :2] += len(self.heads)
        packed[len(self.heads) :, :3] = self.predicates
        object.__setattr__(self, "packed", packed)

    def __len__(self) -> int:
        return len(self.heads)


class Kept(NamedTuple):
    """Where rows go when runs are joined: each to `rows[position]`, -1 for nowhere; all of them `shift` on if empty."""

    rows: Rows
    shift: int = 0

    def __call__(self, positions: Rows) -> Rows:
        """The new positions."""
        return self.rows[positions] if len(self.rows) else positions + np.int32(self.shift)


@dataclass(slots=True, eq=False)
class Entries:
    """Rows as one side of a family sees them, those that are stored and those that probe alike.

    A row of `matrix` is the mixed key (0 where the family has no equality), `equals` equality codes, `codes` codes,
    and the gate bits, if any gate of any row is shut.
    """

    matrix: Ints
    rows: Rows
    """Their positions in the run or batch."""
    equals: int
    codes: int

    @classmethod
    def of(cls, keys: Ints, equals: Ints, codes: Ints, gates: Ints, rows: Rows) -> Entries:
        """From separate arrays; no keys stand for a family without equality."""
        column = keys.reshape(-1, 1) if len(keys) else np.zeros((len(rows), 1), np.int64)
        matrix = np.ascontiguousarray(np.hstack([column, equals, codes, gates]))
        return cls(matrix, rows, equals.shape[1], codes.shape[1])

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def keys(self) -> Ints:
        """The key of each row."""
        return self.matrix[:, 0]

    @property
    def values(self) -> Ints:
        """The codes of each row."""
        return self.matrix[:, 1 + self.equals : 1 + self.equals + self.codes]

    @property
    def gates(self) -> Ints:
        """The gate bits of each row."""
        return self.matrix[:, 1 + self.equals + self.codes :]

    def take(self, which: Ints) -> Entries:
        """Some of the entries."""
        return Entries(self.matrix[which], self.rows[which], self.equals, self.codes)

    def at(self, rows: Rows) -> Entries:
        """The same entries under other positions; those at -1 are left out."""
        moved = Entries(self.matrix, rows, self.equals, self.codes)
        return moved if (rows >= 0).all() else moved.take(np.flatnonzero(rows >= 0))


@dataclass(frozen=True)
class Arrangement:
    """How rows of one key lie: sorted by one code column (`lead`), in Z-order of all under `cuts`, or as they come."""

    lead: int = -1
    cuts: Ints = field(default_factory=lambda: _NO_CUTS)
    at: int = 0
    """The number of rows it was chosen for."""

    @property
    def tag(self) -> int:
        """Equal for arrangements under which trees can be merged."""
        if self.lead != ZORDER:
            return self.lead
        mixed = int(np.bitwise_xor.reduce(self.cuts * _ODD[: len(self.cuts)]))
        return mixed | np.iinfo(np.int64).min  # negative: never a column

    def order(self, codes: Ints) -> Ints:
        """The sort value of each row within its key."""
        if self.lead == ZORDER:
            interleaved: Ints = z_order(np.ascontiguousarray(codes), self.cuts)
            return interleaved
        return np.ascontiguousarray(codes[:, self.lead]) if self.lead >= 0 else _NO_ORDER


_ODD: Ints = np.arange(1, 1 << 18, 2, dtype=np.int64)


@dataclass(slots=True, eq=False)
class Pairs:
    """Pairs found by a probe: program, query (index into the probing entries) and stored row, aligned."""

    program: Rows
    query: Rows
    row: Rows

    @classmethod
    def of(cls, found: Rows) -> Pairs:
        """From the n x 3 array of a kernel."""
        return cls(*np.ascontiguousarray(found.T))

    def __len__(self) -> int:
        return len(self.row)


class Tree:
    """An immutable packed LT-tree with its hash index."""

    __slots__ = ("buffer", "n")

    def __init__(self, buffer: Ints) -> None:
        if len(buffer) < HEADER or buffer[0] != layout.MAGIC:
            raise StateError("not a packed index of this version", hint="restore the state from a copy, or rebuild it")
        self.buffer = buffer
        self.n = int(buffer[layout.ROWS])

    @classmethod
    def build(
        cls, entries: Entries, arrangement: Arrangement, *, keyed: bool, keep_cuts: bool = True, leaf: int = LEAF,
        fanout: int = FANOUT,
    ) -> Tree:  # fmt: skip
        """Sorts the entries by (key, arrangement) and packs them. A small tree may leave the cuts to a larger one."""
        order = arrangement.order(entries.values)
        keys = np.ascontiguousarray(entries.keys) if keyed else _NO_ORDER
        perm = sort_rows(keys, order) if len(keys) or len(order) else np.arange(len(entries))
        return cls(
            layout.pack(
                perm, order, entries.matrix, entries.rows, int(keyed), entries.equals, entries.codes,
                arrangement.lead, arrangement.tag, arrangement.at, leaf, fanout,
                arrangement.cuts if keep_cuts else _NO_CUTS,
            )
        )  # fmt: skip

    def merged(self, kept: Kept, other: Tree, other_kept: Kept) -> Tree:
        """One tree of the rows that are kept of two trees that share an arrangement."""
        leaf, fanout = int(self.buffer[layout.LEAF]), int(self.buffer[layout.FANOUT])
        return Tree(
            layout.merge(
                self.buffer, kept.rows, kept.shift, other.buffer, other_kept.rows, other_kept.shift, leaf, fanout
            )
        )

    @property
    def tag(self) -> int:
        """The arrangement's tag."""
        return int(self.buffer[layout.TAG])

    @property
    def self_contained(self) -> bool:
        """Whether it holds all of its arrangement, so that others can be arranged like it."""
        return bool(self.buffer[layout.LEAD] != ZORDER or self.buffer[layout.CUTS])

    @property
    def arrangement(self) -> Arrangement:
        """How its rows lie; without cuts if they were left to a larger tree."""
        at = layout.sections(self.buffer)[10]
        cuts = self.buffer[at : at + int(self.buffer[layout.CUTS])]
        return Arrangement(int(self.buffer[layout.LEAD]), cuts, int(self.buffer[layout.ARRANGED_AT]))

    def entries(self) -> Entries:
        """Its rows in sorted order."""
        matrix, rows = layout.unpack(self.buffer)
        return Entries(matrix, rows, int(self.buffer[layout.EQUALS]), int(self.buffer[layout.CODES]))

    def probe(
        self, queries: Entries, programs: Programs, *, wanted: int = -1, within: bool = False, dead: Bytes = ALIVE,
        limit: int = PAIRS_AT_ONCE,
    ) -> Iterable[Pairs]:  # fmt: skip
        """The pairs of queries and stored rows, in steps of about `limit`.

        `wanted` selects programs by bits. `within`: the queries are rows of this very tree, known by their positions,
        and each program follows its rule for pairs within one set.
        """
        n = len(queries.rows)
        if n > _FEW:
            return self._steps(queries, programs, wanted, OTHERS if within else EVERY, dead, limit)
        # A few rows, of a single change say, find few pairs: one step, and no generator around it.
        _, found, _, pairs = probe_tree(
            self.buffer, dead, queries.matrix, queries.rows, queries.codes, programs.packed, len(programs.heads),
            wanted, OTHERS if within else EVERY, 0, _NO_LIMIT, _NO_TALLY,
        )  # fmt: skip
        return (Pairs.of(pairs),) if found else ()

    def _steps(
        self, queries: Entries, programs: Programs, wanted: int, meets: int, dead: Bytes, limit: int
    ) -> Iterator[Pairs]:
        at = 0
        while at < len(queries):
            at, found, _, pairs = probe_tree(
                self.buffer, dead, queries.matrix, queries.rows, queries.codes, programs.packed, len(programs),
                wanted, meets, at, limit, _NO_TALLY,
            )  # fmt: skip
            if found:
                yield Pairs.of(pairs)

    def count(self, queries: Entries, programs: Programs, *, wanted: int = -1, dead: Bytes = ALIVE) -> tuple[Ints, int]:
        """How many stored rows each query matches under the programs, without listing; and nodes visited.

        `wanted` selects programs by bits. A row that matches under two of them counts twice. Where there are dead rows
        every row that matches is looked at.
        """
        tally = np.zeros(len(queries), np.int64)
        _, _, visits, _ = probe_tree(
            self.buffer, dead, queries.matrix, queries.rows, queries.codes, programs.packed, len(programs),
            wanted, EVERY, 0, _NO_LIMIT, tally,
        )  # fmt: skip
        return tally, visits

    def open_gates(self) -> Ints:
        """The gates that some row passes, as words of bits; no word if all rows pass all, or there are no rows."""
        return self._root_gates()[1::2]

    def all_pass(self, gate: int) -> bool:
        """Whether every row passes a gate."""
        every = self._root_gates()[::2]
        return gate < 0 or not len(every) or bool(every[gate >> 6] >> (gate & 63) & 1)

    def _root_gates(self) -> Ints:
        """Of each word of gates the bits that all rows have, and those that any row has."""
        at, words, nodes = layout.sections(self.buffer)[7], int(self.buffer[layout.GATES]), self.buffer[layout.NODES]
        root: Ints = self.buffer[at + 2 * words * (nodes - 1) : at + 2 * words * nodes]
        return root if self.n else root[:0]

    def _check(self) -> None:
        """Asserts every invariant of the structure."""
        buf, n = self.buffer, self.n
        where = layout.sections(buf)
        assert len(buf) == where[10] + buf[layout.CUTS], "the sections fill the buffer"
        mine = self.entries()
        assert len(set(mine.rows.tolist())) == n, "a row stands once"
        # Sorted by key, then by the arrangement.
        assert (mine.keys[1:] >= mine.keys[:-1]).all(), "keys rise"
        lead = int(buf[layout.LEAD])
        order = buf[where[2] : where[3]] if lead == ZORDER else mine.values[:, lead] if lead >= 0 else _NO_ORDER
        if n > 1 and len(order):
            tie = mine.keys[1:] == mine.keys[:-1]
            assert (order[1:] >= order[:-1])[tie].all(), "the order rises within a key"
        # Every node's bounds are the exact minimum and maximum of its rows.
        nodes = buf[where[6] : where[7]].reshape(int(buf[layout.NODES]), mine.codes, 2)
        gated = buf[where[7] : where[8]].reshape(int(buf[layout.NODES]), mine.gates.shape[1], 2)
        starts = buf[where[8] : where[9]]
        span = int(buf[layout.LEAF])
        for level in range(int(buf[layout.LEVELS])):
            for block in range(int(starts[level + 1] - starts[level])):
                rows = slice(block * span, min(n, (block + 1) * span))
                node = nodes[starts[level] + block]
                assert (node[:, 0] == mine.values[rows].min(0)).all(), "minimum of a node"
                assert (node[:, 1] == mine.values[rows].max(0)).all(), "maximum of a node"
                gate = gated[starts[level] + block]
                assert (gate[:, 0] == np.bitwise_and.reduce(mine.gates[rows])).all(), "gates of all rows of a node"
                assert (gate[:, 1] == np.bitwise_or.reduce(mine.gates[rows])).all(), "gates of any row of a node"
            span *= int(buf[layout.FANOUT])
        # The hash index finds each key's whole slice, and nothing for absent keys.
        for key in [*np.unique(mine.keys).tolist(), 0, 17]:
            first, end = layout.key_range(buf, where[0], where[9], key)
            expected = np.flatnonzero(mine.keys == key) if buf[layout.KEYED] else np.arange(n)
            assert end - first == len(expected), "the size of a key's slice"
            assert not len(expected) or first == expected[0], "the start of a key's slice"
