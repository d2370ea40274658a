"""The stream without Spark: routing, shards, manifests and run files in one process, batch after batch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from weever_stream.detect.pairs import unpack_pairs
from weever_stream.feeds.changes import (
    CHANGE,
    CLEAR,
    DROP,
    DROP_ANYWHERE,
    ORIGIN,
    PUT,
    PUT_ANYWHERE,
    REASON,
    RECORD,
    SEQUENCE,
)  # fmt: skip
from weever_stream.rules import Rule
from weever_stream.rules.bind import bind_all
from weever_stream.rules.types import ColumnType, schema_of
from weever_stream.state.manifest import Manifest
from weever_stream.state.store import StoreOptions
from weever_stream.stream.routing import Router
from weever_stream.stream.setup import Setup
from weever_stream.stream.work import ShardWork

__all__ = ["Change", "Simulation", "change_frame", "setup_of"]

Change = tuple[int, int, Mapping[str, Any]]
"""Kind, sequence, row."""
KINDS = (DROP, PUT, DROP_ANYWHERE, PUT_ANYWHERE, CLEAR)


def setup_of(rules: Sequence[Rule], schema: pa.Schema, key: Sequence[str], folder: Path | str, **options: Any) -> Setup:
    found = schema_of(schema)
    types = {name: found[name] for name in key}
    read = sorted({name for rule in rules for name in rule.columns} - set(key))
    assert all(isinstance(kind, ColumnType) for kind in types.values())
    return Setup(
        rules=bind_all(rules, found),
        key=tuple(types.items()),  # type: ignore[arg-type]
        columns=pa.schema([schema.field(name) for name in [*key, *read]]),
        store=StoreOptions(str(folder)),
        **{"shards": 4, **options},
    )


def change_frame(changes: Iterable[Change], schema: pa.Schema) -> pa.Table:
    listed = list(changes)
    rows = pa.Table.from_pylist([{**dict.fromkeys(schema.names), **row} for _, _, row in listed], schema)
    rows = rows.append_column(CHANGE, pa.array([kind for kind, _, _ in listed], pa.int8()))
    rows = rows.append_column(SEQUENCE, pa.array([sequence for _, sequence, _ in listed], pa.int64()))
    for name in (REASON, ORIGIN, RECORD):
        rows = rows.append_column(name, pa.nulls(len(listed), pa.string()))
    return rows


class Simulation:
    """Shards of a job, their state as bytes between batches, and the log of all deltas."""

    def __init__(self, setup: Setup, *, check: bool = True) -> None:
        self.setup = setup
        self.check = check
        self.states: dict[int, bytes] = {}
        self.batches = 0
        self.open: Counter[tuple[str, str, str | None]] = Counter()
        self.work, self.router = ShardWork(setup), Router(setup)

    def restart(self) -> None:
        """A new process: nothing is cached."""
        self.work, self.router = ShardWork(self.setup), Router(self.setup)

    def batch(self, frames: Iterable[pa.Table], lane: Iterable[tuple[int, bytes]] = ()) -> list[dict[str, Any]]:
        """Applies one batch that comes in some frames, with messages of the lane; its deltas."""
        bodies: dict[int, list[bytes]] = {}
        for shard, body in lane:
            bodies.setdefault(shard, []).append(body)
        for frame in frames:
            for shard, message in self.router.route(frame):
                bodies.setdefault(shard, []).append(message.pack())
        told: list[tuple[bool, dict[str, Any]]] = []
        for shard, mine in sorted(bodies.items()):
            told += self._shard(shard, mine)
        self.batches += 1
        signs = {"added": 1, "removed": -1}
        moving: Counter[str] = Counter()
        for moves, delta in told:
            moving[delta["violation_id"]] += signs[delta["change"]] if moves else 0
        left = {
            delta["violation_id"]: delta
            for moves, delta in told
            if moves and moving[delta["violation_id"]] == signs[delta["change"]]
        }
        deltas = [*(delta for moves, delta in told if not moves), *left.values()]
        ids = [delta["violation_id"] for delta in deltas]
        assert len(set(ids)) == len(ids), "a batch tells a violation once"
        for delta in deltas:
            violation = (delta["rule"], delta["left_key"], delta["right_key"])
            self.open[violation] += 1 if delta["change"] == "added" else -1
            assert self.open[violation] in (0, 1), f"{violation} is open or not"
        self.open = +self.open
        assert sum(self.counts().values()) == len(self.open), "shards know how many are open"
        return deltas

    def _shard(self, shard: int, bodies: list[bytes]) -> list[tuple[bool, dict[str, Any]]]:
        work = self.work.apply(shard, self.batches, self.states.get(shard), bodies)
        deltas: list[tuple[bool, dict[str, Any]]] = []
        while True:
            try:
                piece = next(work)
            except StopIteration as end:
                self.states[shard] = end.value.dump()
                break
            rule = self.setup.rules[piece.rule].rule
            change = "added" if piece.sign > 0 else "removed"
            batch = unpack_pairs(rule, self.setup.key_names, change, piece.body)
            assert batch.num_rows == piece.pairs
            deltas += [(piece.moving, delta) for delta in batch.to_pylist()]
        if self.check:
            self.verify(shard)
        return deltas

    def verify(self, shard: int) -> None:
        manifest = Manifest.load(self.states[shard], str(shard))
        for family in self.setup.families:
            opened = self.work.keeper.open(family, manifest, str(shard))
            opened.shard._check()

    def counts(self) -> Counter[str]:
        """Open violations of every rule, as the manifests have them."""
        counts: Counter[str] = Counter()
        for shard, state in self.states.items():
            manifest = Manifest.load(state, str(shard))
            for family in self.setup.families:
                if held := manifest.families.get(family.identity):
                    for rule, n in zip(family.rules, held.open, strict=True):
                        counts[self.setup.rules[rule].rule.name] += max(n, 0)
        return counts
