"""Runs worlds: one seed, or many in a row, with what failed told and kept."""

from __future__ import annotations

import gc
import shutil
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing import get_context
from pathlib import Path

from tests.simulation.kept import under_way
from tests.simulation.world import World

__all__ = ["Ran", "found_by", "run_all", "run_jobs", "run_noted", "run_one"]

MEMORY = Path("/dev/shm")
SEEDS_AT_ONCE = 50
"""That a process is given."""


@dataclass
class Ran:
    """What became of some runs."""

    runs: int = 0
    seconds: float = 0.0
    cpu: float = 0.0
    struck: Counter[str] = field(default_factory=Counter)
    passed: list[int] = field(default_factory=list)
    failed: dict[int, str] = field(default_factory=dict)
    """By seed; the end of the traceback."""

    def add(self, other: Ran) -> None:
        """What became of some more, run elsewhere meanwhile."""
        self.runs, self.cpu, self.struck = self.runs + other.runs, self.cpu + other.cpu, self.struck + other.struck
        self.passed += other.passed
        self.failed |= other.failed

    def line(self) -> str:
        """The progress of it all."""
        rate, cpu = (60 * self.runs / max(spent, 1e-9) for spent in (self.seconds, self.cpu))
        told = f"{self.runs} runs, {rate:.0f} a minute ({cpu:.0f} a minute of CPU)"
        return f"{told}, {len(self.failed)} failed, {self.struck['batches']} batches"


def run_one(seed: int, tell: Callable[[str], None] | None = None) -> Counter[str]:
    """One world, from its seed; fails with whatever is wrong."""
    with _folder() as folder:
        return World(seed, folder, tell).run()


def run_all(seeds: Iterable[int], until: float = float("inf"), told: Callable[[Ran], None] | None = None) -> Ran:
    """Worlds in a row, until a time of `time.monotonic`. A failure does not stop the others."""
    ran, began, cpu = Ran(), time.monotonic(), time.process_time()
    for seed in seeds:
        if time.monotonic() >= until:
            break
        try:
            ran.struck += run_one(seed)
            ran.passed.append(seed)
        except Exception:
            ran.failed[seed] = traceback.format_exc()
        ran.runs += 1
        ran.seconds, ran.cpu = time.monotonic() - began, time.process_time() - cpu
        if told is not None:
            told(ran)
    return ran


def run_jobs(
    seeds: Iterable[int], jobs: int, until: float = float("inf"), told: Callable[[Ran], None] | None = None
) -> Ran:
    """As `run_all`, by so many processes. Each notes the seed that it is at, see `kept`."""
    ran, began, left = Ran(), time.monotonic(), iter(seeds)
    with ProcessPoolExecutor(jobs, get_context("spawn")) as pool:
        going: set[Future[Ran]] = set()
        while True:
            while len(going) < 2 * jobs and time.monotonic() < until and (some := list(islice(left, SEEDS_AT_ONCE))):
                going.add(pool.submit(run_noted, some))
            if not going:
                return ran
            done, going = wait(going, return_when=FIRST_COMPLETED)
            for one in done:
                ran.add(one.result())
                ran.seconds = time.monotonic() - began
                if told is not None:
                    told(ran)


def run_noted(seeds: Iterable[int], until: float = float("inf"), told: Callable[[Ran], None] | None = None) -> Ran:
    """As `run_all`, and the seed under way is noted. Collects garbage less often: there are no circles to speak of."""
    if not gc.get_freeze_count():  # once: what is frozen is never collected
        gc.freeze()
    gc.set_threshold(50_000, 20, 50)

    def noted() -> Iterator[int]:
        for seed in seeds:
            note.write_text(str(seed))
            yield seed

    with under_way() as note:
        return run_all(noted(), until, told)


def found_by(fault: Callable[[], AbstractContextManager[None]], seeds: Iterable[int]) -> int | None:
    """The first seed that finds a fault which is put into the product, if any does."""
    for seed in seeds:
        try:
            with fault():
                run_one(seed)
        except AssertionError:
            return seed
    return None


@contextmanager
def _folder() -> Iterator[str]:
    """A folder for a world, in memory where there is such a thing."""
    where = MEMORY if sys.platform == "linux" and MEMORY.is_dir() else None
    folder = tempfile.mkdtemp(prefix="weever-simulation-", dir=where)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
