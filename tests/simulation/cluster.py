"""Workers and the tasks they run, as a cluster does it: again after a failure, twice at once, half and no further.

A worker is one `ShardWork` with all that it caches. An attempt reads a task's messages in an order of its own, because
Spark's shuffle does. A task that runs twice runs on two workers by turns; either result is taken. After four failures
of a task the query fails. A state error must be about something that was damaged: that is asked of `explained`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass

from tests.simulation.chance import Chance
from tests.simulation.store import FaultyStore, WorkerKilled
from weever_stream.errors import StateError, WeeverError
from weever_stream.state.manifest import Manifest
from weever_stream.stream.setup import Setup
from weever_stream.stream.work import Piece, ShardWork

__all__ = ["WORKERS", "Cluster", "QueryFailed", "Result", "Task"]

TRIES = 4
WORKERS = 2


class QueryFailed(Exception):
    """A task failed too often, or a sink did: the query ends, and somebody starts it again."""


class _HalfWay(Exception):
    """A task is over before its end."""


@dataclass(frozen=True)
class Task:
    """The part of a batch that one shard does."""

    shard: int
    batch: int
    state: bytes | None
    bodies: tuple[bytes, ...]


@dataclass(frozen=True)
class Result:
    """What an attempt at a task came to."""

    pieces: list[Piece]
    manifest: Manifest

    def pairs(self) -> dict[tuple[int, int], int]:
        """How many pairs it tells, by rule and sign. Which ones is seen by the log."""
        counts: dict[tuple[int, int], int] = {}
        for piece in self.pieces:
            counts[piece.rule, piece.sign] = counts.get((piece.rule, piece.sign), 0) + piece.pairs
        return counts


class Attempt:
    """One attempt at a task on one worker, piece by piece."""

    def __init__(self, worker: int, steps: Generator[Piece, None, Manifest], after: int | None) -> None:
        self.worker = worker
        self.result: Result | None = None
        self.error: BaseException | None = None
        self._steps, self._pieces, self._after = steps, list[Piece](), after

    def step(self) -> bool:
        """Goes on by a piece; whether there is more to do."""
        try:
            if self._after is not None and len(self._pieces) >= self._after:
                self._steps.close()
                raise _HalfWay
            self._pieces.append(next(self._steps))
            return True
        except StopIteration as end:
            self.result = Result(self._pieces, end.value)
        except (WeeverError, WorkerKilled, _HalfWay) as error:
            self.error = error
        return False


class Cluster:
    """Some workers."""

    def __init__(self, setup: Setup, chance: Chance, explained: Callable[[StateError], bool]) -> None:
        self._setup, self._chance, self._explained = setup, chance, explained
        self._workers: dict[int, ShardWork] = {}

    def worker(self, number: int) -> ShardWork:
        """A worker, begun when it is first asked for something."""
        work = self._workers.get(number)
        if work is None:
            work = self._workers[number] = ShardWork(self._setup)
            # The store is made inside; a faulty one takes its place, over the same folder.
            work.store = work.keeper._store = FaultyStore(self._setup.store, self._chance.strikes)
        return work

    def lose(self, number: int) -> None:
        """A worker is replaced by one that knows nothing."""
        self._workers.pop(number, None)

    def run(self, task: Task) -> Result:
        """A task, until it is done or was tried too often."""
        for _ in range(TRIES):
            twice = self._chance.strikes("a task runs twice")
            attempts = self._attempted(task, twice=twice)
            done = [attempt.result for attempt in attempts if attempt.result is not None]
            self._look_at_failures(attempts)
            if len(done) == 2:
                assert done[0].pairs() == done[1].pairs(), "a task says the same when it runs twice"
            if done and not self._chance.strikes("a task fails half way"):  # or it fails when its state is committed
                return self._chance.random.choice(done)
            self._chance.struck["tasks tried again"] += 1
        raise QueryFailed(f"the task of shard {task.shard} was tried {TRIES} times")

    def run_late(self, task: Task) -> None:
        """Runs a task that is over: nobody looks at what it comes to."""
        self._lose_killed(self._attempted(task, twice=False))

    def _attempted(self, task: Task, *, twice: bool) -> list[Attempt]:
        numbers = self._chance.random.sample(range(WORKERS), 2 if twice else 1)
        attempts = [self._attempt(task, number) for number in numbers]
        going = list(attempts)
        while going:
            attempt = self._chance.random.choice(going)
            if not attempt.step():
                going.remove(attempt)
        return attempts

    def _attempt(self, task: Task, number: int) -> Attempt:
        bodies = self._chance.random.sample(task.bodies, len(task.bodies))
        steps = self.worker(number).apply(task.shard, task.batch, task.state, bodies)
        half = self._chance.strikes("a task fails half way")
        return Attempt(number, steps, self._chance.random.randrange(4) if half else None)

    def _look_at_failures(self, attempts: list[Attempt]) -> None:
        for attempt in attempts:
            if isinstance(attempt.error, StateError):
                assert self._explained(attempt.error), f"state is refused that nobody damaged: {attempt.error}"
                self._chance.struck["damage refused"] += 1
                self._chance.tell(f"  refused: {attempt.error.message}")
        self._lose_killed(attempts)

    def _lose_killed(self, attempts: list[Attempt]) -> None:
        for attempt in attempts:
            if isinstance(attempt.error, WorkerKilled):
                self.lose(attempt.worker)
