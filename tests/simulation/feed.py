"""A table that changes at random, what its feed tells of it, and what the table is at any position of the feed.

The feed is a list of units: what batches do not cut. A position is a number of units. What the table is there follows
from the changes alone: of each key the last by sequence, of one sequence the put. Where changes come in their order it
is also what the source itself was then, and both must agree: that holds the simulation to its own word.
"""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from tests.detect.drawn import VALUES
from tests.oracle import key_of
from tests.simulation.plan import KEYS, Plan
from tests.stream.simulated import Change
from weever_stream.feeds.changes import CLEAR, DROP, DROP_ANYWHERE, PUT, PUT_ANYWHERE

__all__ = ["Feed"]

Key = tuple[Any, ...]
Row = Mapping[str, Any]


class Feed:
    """The table and its feed."""

    def __init__(self, random: Random, plan: Plan) -> None:
        self._random, self._plan, self._dialect = random, plan, plan.dialect
        self._keys = self._drawn_keys()
        self._table: dict[Key, Row] = {}
        self._sequence = random.choice((0, 0, 2**40))
        self._last: dict[Key, list[Change]] = {}
        """The last change of each key, since the table was last cleared."""
        self._held_back: list[list[Change]] = []
        self.units: list[list[Change]] = []
        self._source: list[dict[Key, Row]] = [{}]
        """What the source was at each position."""

    def _drawn_keys(self) -> list[Key]:
        pools = KEYS[self._plan.key]
        drawn = {tuple(self._random.choice(pools[name]) for name in self._plan.key): 0 for _ in range(self._plan.keys)}
        return list(drawn)

    def change(self) -> None:
        """Some commits or messages."""
        for _ in range(self._random.randint(1, self._plan.changes)):
            drawn = self._random.random()
            if self._dialect.clears and drawn < 0.04:
                self._clear()
            elif drawn > 0.7:
                self._move_together()
            else:
                size = min(self._random.randint(1, self._dialect.commit), len(self._keys))
                self._commit(self._random.sample(self._keys, size))
            if self._last and self._random.random() < 0.1:
                self._tell(list(self._last[self._random.choice(list(self._last))]))
            if self._dialect.late and self.units and self._random.random() < 0.2:
                self._tell(list(self._random.choice(self.units)))
        while self._held_back and self._random.random() < 0.7:
            self._tell(self._held_back.pop(self._random.randrange(len(self._held_back))))

    def finish(self) -> None:
        """What is held back comes after all."""
        for unit in self._held_back:
            self._tell(unit)
        self._held_back = []

    def _move_together(self) -> None:
        """Some rows get the same new value in one column: what was a violation may be one still, in another shard."""
        columns, live = [name for name in self._plan.schema.names if name not in self._plan.key], list(self._table)
        if not columns or not live:
            return
        name = self._random.choice(columns)
        become = {name: self._random.choice(self._values(name))}
        keys = self._random.sample(live, min(len(live), self._random.randint(2, 4)))
        for at in range(0, len(keys), self._dialect.commit):
            self._commit(keys[at : at + self._dialect.commit], become)

    def _commit(self, keys: list[Key], become: Row | None = None) -> None:
        self._sequence += 1
        unit: list[Change] = []
        for key in keys:
            changes = self._changed(key, become)
            if changes:
                self._last[key] = changes
            unit += changes
        if not self._dialect.late or self._random.random() < 0.5:
            self._tell(unit)
            return
        cut = self._random.randrange(len(unit) + 1)
        self._tell(unit[:cut])
        self._held_back.append(unit[cut:])

    def _changed(self, key: Key, become: Row | None) -> list[Change]:
        """One change of a key, any or a given one, as the dialect tells it."""
        old, known = self._table.get(key), self._random.random() < self._dialect.known
        if old is not None and become is not None:
            return self._put(key, old, {**old, **become}, known=known)
        if old is None and self._random.random() < 0.1:
            return [(DROP_ANYWHERE, self._sequence, self._named(key))]  # of a row that is not there
        if old is not None and self._random.random() < 0.3:
            del self._table[key]
            full = known or self._random.random() < 0.2
            return [(DROP if known else DROP_ANYWHERE, self._sequence, old if full else self._named(key))]
        return self._put(key, old, self._row(key, old), known=known)

    def _put(self, key: Key, old: Row | None, new: Row, *, known: bool) -> list[Change]:
        self._table[key] = new
        if not known:
            return [(PUT_ANYWHERE, self._sequence, new)]
        return [*([(DROP, self._sequence, old)] if old is not None else []), (PUT, self._sequence, new)]

    def _row(self, key: Key, old: Row | None) -> Row:
        """A new row; of an old one some columns stay, or all."""
        kept = self._random.choice((0.0, 0.5, 0.9, 1.0)) if old is not None else 0.0
        row = self._named(key)
        for name in self._plan.schema.names:
            if name in row:
                continue
            stays = old is not None and self._random.random() < kept
            row[name] = old[name] if stays and old is not None else self._random.choice(self._values(name))
        return row

    def _values(self, name: str) -> list[Any]:
        values = VALUES[name][1] if name in VALUES else KEYS[(name,)][name]
        return [*values, *values, None]

    def _named(self, key: Key) -> dict[str, Any]:
        return dict(zip(self._plan.key, key, strict=True))

    def _clear(self) -> None:
        self._sequence += 1
        self._table.clear()
        self._last.clear()
        self._tell([(CLEAR, self._sequence, {})])

    def _tell(self, unit: list[Change]) -> None:
        if unit:
            self.units.append(unit)
            self._source.append(dict(self._table))

    def table(self, position: int) -> dict[Key, Row]:
        """The table at a position."""
        last, cleared = self._last_changes(position)
        table = {key: row for key, (order, row) in last.items() if order & 1 and order >= 2 * cleared}
        assert self._dialect.late or table == self._source[position], "the feed tells what the source was"
        return table

    def filling(self, position: int, *, anywhere: bool) -> list[Change]:
        """The table at a position as changes that fill a rule; `anywhere`: with the keys that are gone."""
        last, cleared = self._last_changes(position)
        young = [(order, row) for order, row in last.values() if order >= 2 * cleared]
        if not anywhere:
            return [(PUT, order >> 1, row) for order, row in young if order & 1]
        return [(PUT_ANYWHERE if order & 1 else DROP_ANYWHERE, order >> 1, row) for order, row in young]

    def late_keys(self, position: int) -> set[Any]:
        """Keys of which a change came after a newer one, as the oracle has them."""
        newest: dict[Any, int] = {}
        late: set[Any] = set()
        for sequence, row in ((at, row) for unit in self.units[:position] for kind, at, row in unit if kind != CLEAR):
            key = key_of(row, self._plan.key)
            if sequence < newest.setdefault(key, sequence):
                late.add(key)
            newest[key] = max(newest[key], sequence)
        return late

    def _last_changes(self, position: int) -> tuple[dict[Key, tuple[int, Row]], int]:
        """Of each key the order and row of its last change, and when the table was last emptied."""
        last: dict[Key, tuple[int, Row]] = {}
        cleared = -1
        for unit in self.units[:position]:
            for kind, sequence, row in unit:
                if kind == CLEAR:
                    cleared = max(cleared, sequence)
                    continue
                put = kind in (PUT, PUT_ANYWHERE)
                key, order = tuple(row[name] for name in self._plan.key), 2 * sequence + put
                if key not in last or order >= last[key][0]:
                    last[key] = (order, row)
        return last, cleared
