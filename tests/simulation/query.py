"""A streaming query as Spark runs it: a batch from its offsets to its commit.

Offsets are logged before a batch is run, so that a batch which is run again has the same changes. States of all shards
count when the batch is committed, which is after all sinks have it. Whoever dies in between, the next query begins
behind the last commit. Routing, netting and the ledger are the product's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

from tests.simulation.chance import Chance
from tests.simulation.cluster import Cluster, QueryFailed, Result, Task
from tests.simulation.feed import Feed
from tests.simulation.job import Checkpoint, Job, Saved, die
from tests.stream.simulated import Change, change_frame
from weever_stream.errors import StateError
from weever_stream.state.noted import Noted
from weever_stream.stream.columns import needed
from weever_stream.stream.deltas import unpacked_here
from weever_stream.stream.operator import DELTAS, _tally
from weever_stream.stream.progress import BatchReport, Ledger
from weever_stream.stream.routing import Router

__all__ = ["Query", "Sink"]

TOLD = ["rule", "change", "violation_id", "left_key", "right_key", "left_values", "right_values", "reason"]
EPOCH = datetime(2024, 1, 1, tzinfo=timezone.utc)


class Sink(Protocol):
    """What a batch is written to."""

    def write(self, batch: int, deltas: Sequence[dict[str, Any]]) -> None: ...


class _Row(NamedTuple):
    """A piece as a row of the operator's output."""

    kind: int
    rule: int
    sign: int
    pairs: int
    moving: bool
    body: bytes


class Query:
    """A query from its start to its death."""

    def __init__(
        self,
        noted: Noted,
        job: Job,
        feed: Feed,
        checkpoint: Checkpoint,
        sinks: Sequence[Sink],
        chance: Chance,
        *,
        explained: Callable[[StateError], bool],
        meanwhile: Callable[[], None],
    ) -> None:
        self.noted, self.setup = noted, job.setup(noted)
        self._lane, self._feed, self._checkpoint, self._sinks, self._chance = job.lane, feed, checkpoint, sinks, chance
        self._meanwhile = meanwhile
        self._lane.tidy(noted.revision)
        self._router = Router(self.setup)
        living = [bound.rule for number, bound in enumerate(self.setup.rules) if number not in self.setup.ended]
        self._read = needed(living, noted.key)
        self.cluster = Cluster(self.setup, chance, explained)
        names = [None if rule.ended else rule.name for rule in noted.rules]
        self.ledger = Ledger(job.notes, names, noted.numbering)
        self.tasks: list[Task] = []
        """Those of the last batch."""

    def batch(self) -> bool:
        """Runs the next batch, if there is anything to do, and commits it."""
        checkpoint, number = self._checkpoint, self._checkpoint.committed + 1
        if len(checkpoint.offsets) == number and not self._plan_batch():
            return False
        begin, end, sent = checkpoint.position(number - 1), checkpoint.position(number), checkpoint.lane[number]
        self._chance.tell(f"batch {number}: units {begin} to {end}{', ' if sent else ''}{', '.join(sent)}")
        self._point("the offsets are logged")
        changes = [change for unit in self._feed.units[begin:end] for change in unit]
        results = self._shards(number, changes, sent)
        self._point("the shards are done")
        self._sink(number, results, len(changes))
        saved = {s: Saved(r.manifest.dump(), frozenset(r.manifest.live())) for s, r in results.items()}
        checkpoint.versions[number] = {**checkpoint.states, **saved}
        checkpoint.committed = number
        return True

    def _plan_batch(self) -> bool:
        ready, begin = len(self._feed.units), self._checkpoint.position(self._checkpoint.committed)
        sent = self._lane.next(self._checkpoint, hurry=ready == begin)
        if ready == begin and not sent:
            return False
        part = ready > begin and self._chance.random.random() < 0.3
        self._checkpoint.offsets.append(self._chance.random.randint(begin + 1, ready) if part else ready)
        self._checkpoint.lane.append(sent)
        return True

    def _shards(self, number: int, changes: list[Change], sent: Sequence[str]) -> dict[int, Result]:
        states = self._checkpoint.states
        routed = self._routed(changes) if changes else {}
        for name in sent:
            for shard, body in self._lane.files[name].messages:
                routed.setdefault(shard, []).append(body)
        self.tasks = [
            Task(shard, number, states[shard].value if shard in states else None, tuple(bodies))
            for shard, bodies in sorted(routed.items())
        ]
        results = {}
        for task in self._chance.random.sample(self.tasks, len(self.tasks)):
            results[task.shard] = result = self.cluster.run(task)
            self._chance.tell(
                f"  shard {task.shard}: {sorted(result.pairs().items())}, {len(result.manifest.live())} files"
            )
            self._point(f"shard {task.shard} is done")
        return results

    def _routed(self, changes: list[Change]) -> dict[int, list[bytes]]:
        """The messages to each shard: changes in any order, cut into some frames. What only ended rules read is null."""
        random = self._chance.random
        changes = [(kind, at, {name: row.get(name) for name in self._read}) for kind, at, row in changes]
        if random.random() < 0.6:
            changes = random.sample(changes, len(changes))
        cuts = sorted({0, len(changes), *random.choices(range(len(changes)), k=random.choice((0, 0, 0, 1, 2)))})
        bodies: dict[int, list[bytes]] = {}
        for begin, end in pairwise(cuts):
            for shard, message in self._router.route(change_frame(changes[begin:end], self.setup.columns)):
                bodies.setdefault(shard, []).append(message.pack())
        return bodies

    def _sink(self, number: int, results: dict[int, Result], changes: int) -> None:
        rows = [
            _Row(DELTAS, piece.rule, piece.sign, piece.pairs, piece.moving, piece.body)
            for _, result in sorted(results.items())
            for piece in result.pieces
        ]
        deltas = unpacked_here(rows, self.setup).select(TOLD).to_pylist() if rows else []  # type: ignore[arg-type]
        for shard, result in results.items():
            tally = _tally(self.setup, result.manifest) | {"bytes": 0, "seconds": 0.0}
            self.ledger.take(shard, json.loads(json.dumps(tally)))
        for sink in self._sinks:
            if self._chance.strikes("a sink fails"):
                raise QueryFailed(f"{type(sink).__name__} is down")
            sink.write(number, deltas)
            self._point(f"{type(sink).__name__} has the batch")
        added = sum(delta["change"] == "added" for delta in deltas)
        self.ledger.note(
            BatchReport(
                batch=number,
                position=json.dumps({"units": self._checkpoint.position(number)}),
                detected_at=EPOCH,
                changes=changes,
                rejected=0,
                added=added,
                removed=len(deltas) - added,
                open=self.ledger.open(),
                seconds=0.0,
                shard_seconds=0.0,
                stale=self.ledger.stale(),
            )
        )
        self._chance.tell(f"  told: {added} added, {len(deltas) - added} removed")
        self._point("the position is published")

    def _point(self, name: str) -> None:
        """A moment at which the driver may die, or something else happen meanwhile."""
        die(self._chance, name)
        self._meanwhile()
