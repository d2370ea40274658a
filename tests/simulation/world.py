"""A world: one table, one feed, one job and all that happens to it, drawn from one seed.

Each round the table changes, some events happen, and a batch is run. Rules change when the job is started. An event is one method, listed in `events` under
the fault that lets it strike. Whatever ends the query, the next one begins behind the last commit; what was
damaged is put back when a query has failed over it. In the end all is calm: the feed is read to its end, everything is
verified, and no file is left that nobody needs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any

from tests.simulation.chance import Chance
from tests.simulation.checks import Checks
from tests.simulation.cluster import WORKERS, QueryFailed, Task
from tests.simulation.feed import Feed
from tests.simulation.job import Checkpoint, Job
from tests.simulation.plan import draw
from tests.simulation.query import Query
from tests.simulation.sinks import Log, Topic
from tests.simulation.store import Disk, Killed, WorkerKilled
from weever_stream.errors import StateError, WeeverError
from weever_stream.state import inspect
from weever_stream.state.manifest import Manifest
from weever_stream.state.noted import Noted
from weever_stream.state.store import RunStore
from weever_stream.stream.query import ONE_BATCH

__all__ = ["World"]

MOST_BATCHES = 300


class _Wrong(BaseException):
    """Something is not true, found where exceptions are caught."""


class World:
    """Everything there is."""

    def __init__(self, seed: int, folder: str, tell: Callable[[str], None] | None = None) -> None:
        random = Random(seed)
        self.chance = Chance(random, tell)
        self.plan = draw(random)
        self.feed = Feed(random, self.plan)
        self.checkpoint = Checkpoint()
        self.log, self.topic = Log(), Topic()
        self.job = Job(self.plan, self.feed, self.checkpoint, folder, self.chance)
        self.store = RunStore(self.job.store)
        self.disk = Disk(f"{folder}/runs", random)
        self._whole: dict[int, bytes] = {}
        self.late: list[Task] = []
        self.checks = Checks(self)
        self.query = self._started()
        self.events: dict[str, Callable[[], None]] = {
            "a worker is lost": self.lose_a_worker,
            "the job is restarted": self.restart,
            "the rules change": self.change_rules,
            "files are collected": self.collect_files,
            "a file is damaged": self.damage_a_file,
            "a state is damaged": self.damage_a_state,
            "a task goes on after its end": self.run_a_late_task,
        }

    def run(self) -> Counter[str]:
        """From the beginning to the end; what happened, counted."""
        self.chance.tell(str(self.plan))
        with self.plan.small():
            self.chance.begin(self.plan.weather, self.plan.faults)
            for _ in range(self.plan.batches):
                self.feed.change()
                for name, event in self.events.items():
                    if self._possible(name) and self.chance.strikes(name):
                        self._survived(event)
                self.run_a_batch()
            self.finish()
        return self.chance.struck

    def _possible(self, event: str) -> bool:
        """Whether there is anything that an event could strike: a world has only so many faults."""
        if event == "a file is damaged":
            return bool(self._undamaged())
        if event == "a task goes on after its end":
            return bool(self.late)
        if event == "the rules change":
            return self.checkpoint.committed >= 0
        return event not in ("a state is damaged", "files are collected") or bool(self.checkpoint.states)

    def finish(self) -> None:
        """Reads the feed to its end, with nothing striking any more, and looks at everything."""
        self.chance.calm()
        self.mend()
        self.feed.finish()
        for _ in range(MOST_BATCHES):
            if not self.run_a_batch():
                break
        else:
            raise AssertionError("the feed does not come to its end")
        self.checks.everything()
        self.collect_files()
        self.checks.only_needed_files()

    def _started(self) -> Query:
        """A query, from a note that agrees with the job file; whatever that takes is done before."""
        return self._start(self.job.agreed(self._finishing))

    def _start(self, noted: Noted) -> Query:
        return Query(
            noted,
            self.job,
            self.feed,
            self.checkpoint,
            (self.log, self.topic),
            self.chance,
            explained=self.explained,
            meanwhile=self.meanwhile,
        )

    def _finishing(self, noted: Noted, trigger: str) -> Any:
        """For `revising.finish`: a query that is run to its end."""
        self.query = self._start(noted)

        def run() -> None:
            self.chance.tell(f"a query of revision {noted.revision} does {trigger}")
            try:
                while self._checked_batch() and trigger != ONE_BATCH:
                    pass
            except AssertionError as wrong:  # `finish` would take it for a failure of Spark's
                raise _Wrong(wrong) from wrong

        return SimpleNamespace(query=SimpleNamespace(awaitTermination=run))

    def run_a_batch(self) -> bool:
        """The next batch. If it fails the job is started again, and the batch comes again. Whether there was one."""
        return self._survived(self._checked_batch)

    def _checked_batch(self) -> bool:
        before = self.checkpoint.committed
        went_on = self._batch()
        if self.checkpoint.committed > before:
            for task in self.query.tasks:  # the damage was where nobody looks, and is left behind
                self._whole.pop(task.shard, None)
            self.chance.struck["batches"] += 1
            self.checks.after_commit()
        return went_on

    def _batch(self) -> bool:
        went_on = self.query.batch()
        self.late = list(self.query.tasks)
        return went_on

    def _survived(self, what: Callable[[], bool | None]) -> bool:
        """Does something, and starts the job again if it does not survive that."""
        try:
            return bool(what())
        except Killed:
            if self.chance.strikes("the rules change"):
                self.job.change_rules()
            self.restart()
        except WorkerKilled:
            pass
        except QueryFailed as failure:
            self.chance.tell(f"the query failed: {failure}")
            self.chance.struck["queries failed"] += 1
            self.mend()
            self.restart()
        return True

    def meanwhile(self) -> None:
        """Between the steps of a batch others are at work, too."""
        for name in ("files are collected", "a task goes on after its end"):
            if self._possible(name) and self.chance.strikes(name):
                self.events[name]()

    def restart(self) -> None:
        """A new query: nothing is cached. A start that fails is tried again, maybe with other rules."""
        while True:
            self.chance.tell("the job is started")
            before = self.chance.struck.total()
            try:
                self.query = self._started()
                return
            except Killed:
                self.chance.struck["starts cut off"] += 1
            except WeeverError as error:
                if self.chance.struck.total() == before and not self.disk.damaged and not self._whole:
                    raise AssertionError(f"a start fails where nothing strikes: {error}") from error
                self.chance.tell(f"the start failed: {error}")
                self.chance.struck["starts failed"] += 1
                self.mend()
            except _Wrong as wrong:
                raise wrong.args[0] from wrong
            if self.chance.strikes("the rules change"):
                self.job.change_rules()

    def change_rules(self) -> None:
        """The job file is edited, and the job started again."""
        self.job.change_rules()
        self.restart()

    def lose_a_worker(self) -> None:
        """A worker is replaced."""
        self.query.cluster.lose(self.chance.random.randrange(WORKERS))

    def run_a_late_task(self) -> None:
        """A task of the last batch that was run goes on although it is over."""
        task = self.chance.random.choice(self.late)
        self.chance.tell(f"late task of shard {task.shard}, batch {task.batch}")
        self.query.cluster.run_late(task)

    def collect_files(self) -> None:
        """Deletes what no manifest names, as `weever state gc` does."""
        manifests = self.manifests().values() if not self.damaged_states else ()
        unneeded = [name for name, _ in inspect.orphans(manifests, self.store, older_than=-60.0)] if manifests else []
        self.chance.tell(f"collected: {', '.join(unneeded) or 'nothing'}")
        self.chance.struck["files collected"] += len(self.store.delete(unneeded))
        self.checks.needed_files()

    def damage_a_file(self) -> None:
        """A file that the next batch may need is lost, torn or changed."""
        if live := self._undamaged():
            name = self.chance.random.choice(live)
            kind = self.disk.damage(name)
            self.chance.struck["files damaged"] += 1
            self.chance.tell(f"{name} is {kind}")

    def _undamaged(self) -> list[str]:
        live = {name for saved in self.checkpoint.states.values() for name in saved.live}
        return sorted(live - self.disk.damaged.keys())

    def damage_a_state(self) -> None:
        """The state of a shard is changed."""
        states = self.checkpoint.states
        if states:
            shard = self.chance.random.choice(sorted(states))
            value = bytearray(states[shard].value)
            self._whole.setdefault(shard, bytes(value))
            value[self.chance.random.randrange(len(value))] ^= 1 << self.chance.random.randrange(8)
            states[shard] = replace(states[shard], value=bytes(value))

    def mend(self) -> None:
        """Puts back what was damaged, from copies."""
        self.disk.mend()
        for shard, value in self._whole.items():
            self.checkpoint.states[shard] = replace(self.checkpoint.states[shard], value=value)
        self._whole = {}

    @property
    def damaged_states(self) -> set[int]:
        """Shards whose state is damaged."""
        return set(self._whole)

    def explained(self, error: StateError) -> bool:
        """Whether an error names something that was damaged."""
        return any(name in error.message for name in self.disk.damaged) or any(
            f"shard {shard} " in f"{error.message} " for shard in self.damaged_states
        )

    def manifests(self) -> dict[int, Manifest]:
        """As of the last commit."""
        return {shard: Manifest.load(saved.value, f"shard {shard}") for shard, saved in self.checkpoint.states.items()}
