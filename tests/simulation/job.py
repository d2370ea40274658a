"""A job that is started, again and again, with rules that may have changed: `revising.agreed` with Spark played.

What is done at a start, and in which order, is the product's: the comparison with the note, batches that are finished
first, rules that end and are called to the shards, tables that are routed into the lane, and what is noted when. Played
are the logs of offsets and commits, the folder of the lane, and the reading of the table as it was. The driver
may die between any two files and before and behind every note; the next start must find its way from there.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any, cast
from unittest import mock

import pyarrow as pa

from tests.simulation.chance import Chance
from tests.simulation.feed import Feed
from tests.simulation.plan import Plan
from tests.simulation.store import Killed
from tests.stream.simulated import change_frame
from weever_stream.rules import Rule
from weever_stream.state.noted import Noted
from weever_stream.state.notes import Notes
from weever_stream.state.store import StoreOptions
from weever_stream.stream import revising
from weever_stream.stream.columns import needed
from weever_stream.stream.lane import Table
from weever_stream.stream.operator import ASIDE, filler
from weever_stream.stream.routing import Router
from weever_stream.stream.saved import setup_of
from weever_stream.stream.setup import Setup

__all__ = ["Checkpoint", "FaultyNotes", "Job", "Lane", "Saved"]

_SETUPS: dict[Any, Setup] = {}
"""Those that were planned before, whatever the world: planning takes longer than a small batch."""
_MOST_SETUPS = 5000


@dataclass(frozen=True)
class Saved:
    """The state of a shard, and which files it needs."""

    value: bytes
    live: frozenset[str]


@dataclass
class Checkpoint:
    """What survives a query."""

    offsets: list[int] = field(default_factory=list)
    """Where in the feed each batch ends."""
    lane: list[tuple[str, ...]] = field(default_factory=list)
    """Which files of the lane each batch reads."""
    committed: int = -1
    versions: dict[int, dict[int, Saved]] = field(default_factory=lambda: {-1: {}})
    """The states after each committed batch, as far back as Spark keeps them."""

    @property
    def states(self) -> dict[int, Saved]:
        """The states as of the last commit."""
        return self.versions[self.committed]

    def position(self, batch: int) -> int:
        """Where the feed stands when a batch is done."""
        return self.offsets[batch] if batch >= 0 else 0


class FaultyNotes(Notes):
    """Notes in memory, whole or not at all, at whose writing the driver may die."""

    def __init__(self, chance: Chance) -> None:
        self._chance = chance
        self._written: dict[str, str] = {}

    def read(self, name: str) -> dict[str, Any] | None:
        return json.loads(self._written[name]) if name in self._written else None

    def write(self, name: str, noted: dict[str, Any], *, compact: bool = False) -> None:
        content = json.dumps(noted)
        die(self._chance, f"{name} is not yet written")
        self._written[name] = content
        die(self._chance, f"{name} is written")


def die(chance: Chance, when: str) -> None:
    """A moment at which the driver may die."""
    if chance.strikes("the driver is killed"):
        chance.tell(f"  when {when}")
        raise Killed


@dataclass(frozen=True)
class _File:
    revision: int
    fills: int | None
    """The generation."""
    messages: tuple[tuple[int, bytes], ...]


class Lane:
    """The folder of the lane, in memory. A file comes whole or not at all, one after the other."""

    def __init__(self, chance: Chance) -> None:
        self._chance, self._made = chance, 0
        self.files: dict[str, _File] = {}

    def tidy(self, revision: int) -> None:
        """Deletes what belongs to no revision that was noted."""
        for name in [name for name, file in self.files.items() if file.revision > revision]:
            self._chance.tell(f"  {name} belongs to no revision")
            del self.files[name]
            die(self._chance, "a file of the lane is deleted")

    def call(self, setup: Setup, revision: int, shards: int) -> None:
        """As `lane.Lane.call`."""
        body = Router(setup).nothing().pack()
        self._send(_File(revision, None, tuple((shard, body) for shard in range(shards))))

    def fill(self, table: Table, setup: Setup, generation: int, revision: int, judge: Any) -> tuple[int, ...]:
        """As `lane.Lane.fill`: tasks route parts of the table, and their files come one by one."""
        random, sent, rows = self._chance.random, list[tuple[int, bytes]](), cast("pa.Table", table.rows)
        assert table.rejects is None, "every record of this feed can be read"
        at = 0
        while at < rows.num_rows:
            n = random.randint(1, 2)
            for made in filler(setup, generation)(rows.slice(at, n).combine_chunks().to_batches()):
                routed = zip(made.column("shard").to_pylist(), made.column("body").to_pylist(), strict=True)
                sent += ((shard, body) for shard, body in routed if shard != ASIDE)
            at += n
        random.shuffle(sent)
        counts, n = Counter(shard for shard, _ in sent), random.choice((1, 1, 64))
        for at in range(0, len(sent), n):
            if self._chance.strikes("the lane cannot be written"):
                raise OSError("No space left on device")
            self._send(_File(revision, generation, tuple(sent[at : at + n])))
        return tuple(counts.get(shard, 0) for shard in range(setup.shards))

    def _send(self, file: _File) -> None:
        die(self._chance, "a file of the lane has no name yet")
        self._made += 1
        self.files[f"r{file.revision:05d}-{self._made}"] = file
        die(self._chance, "a file of the lane is there")

    def next(self, checkpoint: Checkpoint, *, hurry: bool) -> tuple[str, ...]:
        """What the next batch reads: some files, those of earlier revisions first. `hurry`: there is nothing else."""
        read = {name for names in checkpoint.lane for name in names}
        new = [name for name in self.files if name not in read]
        if not new:
            return ()
        self._chance.random.shuffle(new)
        n = self._chance.random.choice((1, 1, 4) if hurry else (0, 1, 1, 4))
        return tuple(sorted(new, key=lambda name: self.files[name].revision)[:n])

    def waiting(self, checkpoint: Checkpoint) -> list[_File]:
        """Files that no committed batch has read."""
        read = {name for names in checkpoint.lane[: checkpoint.committed + 1] for name in names}
        return [file for name, file in self.files.items() if name not in read]


class Job:
    """What outlives a start: the job file with its rules, checkpoint, notes and lane."""

    def __init__(self, plan: Plan, feed: Feed, checkpoint: Checkpoint, folder: str, chance: Chance) -> None:
        self._plan, self._feed, self._checkpoint, self._chance = plan, feed, checkpoint, chance
        self.rules: tuple[Rule, ...] = plan.rules
        """As the job file has them now."""
        self.store = StoreOptions(f"{folder}/runs")
        self.notes = FaultyNotes(chance)
        self.lane = Lane(chance)
        self._unused = list(plan.others)
        self.known = {(rule.name, rule.fingerprint): rule for rule in plan.rules}
        """All that it ever had, by name and fingerprint."""

    def change_rules(self) -> None:
        """Somebody edits the job file: a rule goes, comes, denies something else under its name, or has other parts."""
        random, rules, unused = self._chance.random, list(self.rules), self._unused
        kind = random.choice(("goes", "comes", "comes", "becomes", "is spread"))
        at = random.randrange(len(rules))
        if kind == "comes" and unused:
            rules.append(unused.pop(0))
        elif kind == "becomes" and unused:
            rules[at], other = replace(unused[0], name=rules[at].name), replace(rules[at], name=unused[0].name)
            unused[0] = other
        elif kind == "is spread" or len(rules) == 1:
            rules[at] = replace(rules[at], spread=3 - rules[at].spread)
        else:
            unused.append(rules.pop(at))
        self.rules = tuple(rules)
        self.known |= {(rule.name, rule.fingerprint): rule for rule in rules}
        self._chance.struck[f"a rule {kind}"] += 1
        told = ", ".join(f"{rule.name} {rule.fingerprint[:6]} in {rule.spread}" for rule in rules)
        self._chance.tell(f"the rules are now: {told}")

    def agreed(self, start: Callable[[Noted, str], Any], again: Collection[str] = ()) -> Noted:
        """The note to start a query from; `start` begins one that must be finished before."""
        with self._logs():
            return revising.agreed(self._context(start), lambda revision: None, again)  # type: ignore[arg-type]

    def _context(self, start: Callable[[Noted, str], Any]) -> Any:
        return SimpleNamespace(
            spark=SimpleNamespace(version="4.2.0"),
            job=self._file(),
            checkpoint="the checkpoint",
            notes=self.notes,
            lane=self.lane,
            lease=SimpleNamespace(check=lambda: None),
            columns=self._columns,
            setup=self.setup,
            start=start,
        )

    def _file(self) -> Any:
        """The parts of a `Job` that matter here."""
        plan = self._plan
        return SimpleNamespace(
            file=SimpleNamespace(table="rows", key=plan.key, rules=self.rules, columns={}),
            source=SimpleNamespace(kind="files", rejects=None),
            state=SimpleNamespace(
                checkpoint="the checkpoint",
                shards=plan.shards,
                inline_bytes=plan.inline_bytes,
                max_pairs=10_000,
                retain_batches=plan.retain_batches,
            ),
            remember_drops=plan.remember_drops,
        )

    def _columns(self, rules: Sequence[Rule]) -> pa.Schema:
        return pa.schema([self._plan.schema.field(name) for name in needed(rules, self._plan.key)])

    def setup(self, noted: Noted) -> Setup:
        """As `saved.setup_of` makes it; what rules are planned to is made once."""
        about = (noted.key, noted.shards, noted.generations, noted.columns.serialize().to_pybytes())
        made = _SETUPS.get(about)
        if made is None:
            if len(_SETUPS) >= _MOST_SETUPS:
                _SETUPS.clear()
            made = _SETUPS[about] = setup_of(noted, self._file(), self.store)
        plan = self._plan
        setup = replace(
            made,
            store=self.store,
            inline_bytes=plan.inline_bytes,
            retain_batches=plan.retain_batches,
            remember_drops=plan.remember_drops,
        )
        vars(setup).update(families=made.families, living=made.living)
        planned = tuple(family.identity for family in setup.families)
        assert noted.families in ((), planned), "what is noted is planned in another way"
        return setup

    @contextmanager
    def _logs(self) -> Iterator[None]:
        """The logs of offsets and commits, and the table at a position, as `revising` asks for them."""
        checkpoint = self._checkpoint
        played = {
            "last_batches": lambda spark, where: (len(checkpoint.offsets) - 1, checkpoint.committed),
            "planned": lambda spark, where, batch: SimpleNamespace(
                position=json.dumps({"units": checkpoint.position(batch)})
            ),
            "judged_history": lambda context, names, reads, until: until["units"],
            "table_of": self._table_of,
        }
        with mock.patch.multiple(revising, **played):
            yield

    def _table_of(self, position: int, key: Sequence[str], names: Sequence[str], *, anywhere: bool) -> pa.Table:
        """As `lane.table_of`."""
        schema = pa.schema([self._plan.schema.field(name) for name in names])
        rows = self._feed.filling(position, anywhere=anywhere)
        self._chance.random.shuffle(rows)
        return change_frame([(kind, at, {name: row.get(name) for name in names}) for kind, at, row in rows], schema)
