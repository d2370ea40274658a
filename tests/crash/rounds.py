"""Rounds of the soak: each starts a driver, lets it work, does it harm, and holds what it left to the truth.

A round returns how many processes it killed. It does not wait for what a killed driver leaves behind: the next round
starts at once, as a supervisor would. Where a driver refuses to start, or dies of something that nobody did to it, the
round fails with what it said.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable

from tests.crash.lives import ROOT, WAYS, Life
from tests.crash.points import DELIVERIES, LESSONS, POINTS
from tests.crash.world import World
from tests.crash.wrong import Wrong

__all__ = ["ROUNDS", "Broken", "drained", "lesson", "named_point"]

OFTEN = ("--every", "20 ms")


class Broken(AssertionError):
    """A driver that did not do what it should have, with the end of what it said."""

    def __init__(self, what: str, life: Life) -> None:
        super().__init__(f"{what}; exit code {life.process.poll()}; it said:\n{life.errors[-3000:]}")


def named_point(world: World, point: str, n: int = 1) -> int:
    """The driver dies at a named point, the n-th time that it comes there."""
    world.ahead(n + 1)
    with Life(world, *OFTEN, crash=f"{point}:{n}") as life:
        if life.ended() != -signal.SIGKILL:
            raise Broken(f"the driver should have died at {point}", life)
    world.check()
    return 1


def _at_a_point(world: World, drawn: random.Random) -> int:
    return named_point(world, drawn.choice(POINTS), drawn.choice([1, 1, 2, 3]))


def killed(world: World, way: str, batches: int, moment: float) -> int:
    """The driver, its JVM or both are killed, some time after a number of batches."""
    world.ahead(batches + 2)
    life = Life(world, *OFTEN)
    try:
        if batches and not life.batches(batches):
            raise Broken("the driver should be working", life)
        time.sleep(moment)
        if life.process.poll() is not None:
            raise Broken("the driver should be alive", life)
        life.kill(way)
        if way == "jvm" and batches and (life.ended(120) != 3 or "Spark's JVM was killed (SIGKILL)" not in life.errors):
            raise Broken("a driver that lost its JVM ends with 3 and a message", life)
    except BaseException:
        life.__exit__(None, None, None)
        raise
    if way != "driver":  # a JVM without its driver is left alone, to be in the way of the next life if it can
        life.__exit__(None, None, None)
    world.check()
    return 1


def _at_random(world: World, drawn: random.Random) -> int:
    # Mostly while it works; sometimes while it starts.
    batches = drawn.choice([0, 1, 1, 2, 3])
    return killed(world, drawn.choice(WAYS), batches, drawn.uniform(0.5, 12) if not batches else drawn.uniform(0, 1.5))


def workers(world: World, one_in: int, at_most: int) -> int:
    """Python workers die, the driver does not notice but by the clock."""
    world.ahead(4)
    with Life(world, "--once", crash=f"worker:{one_in}:{at_most}") as life:
        if life.ended() != 0:
            raise Broken("the driver should survive its workers", life)
    world.check(whole=True)
    calls = (world.folder / "passes").stat().st_size if (world.folder / "passes").exists() else 0
    return min(at_most, calls // one_in)


def _workers(world: World, drawn: random.Random) -> int:
    return workers(world, drawn.choice([8, 15, 30]), 3)


def delivery(world: World, point: str, n: int = 1) -> int:
    """The driver dies around the n-th delivery of an alert: before it, after it, or while the other side has it."""
    world.ahead(6)  # enough for rules to begin and end to be violated
    pager = world.pager
    assert pager is not None
    with Life(world, "--once", crash="" if point == "during_delivery" else f"{point}:{n}") as life:
        if point == "during_delivery":
            pager.heard = lambda: life.kill("group")
        if life.ended() != -signal.SIGKILL:
            raise Broken(f"the driver should have died: {point} {n}", life)
    world.kills += 1
    world.check()
    return 1


def _delivery(world: World, drawn: random.Random) -> int:
    return delivery(world, drawn.choice([*DELIVERIES, "during_delivery"]), 1)


def lesson(world: World, point: str, n: int = 1) -> int:
    """The driver dies at a named point of the query that learns rules, the n-th time that it comes there."""
    world.grow(n + 1)  # the query may be ahead of what is published of violations
    return named_point(world, point, n)


def _lesson(world: World, drawn: random.Random) -> int:
    # A dump is made when much has changed: of batches as small as these the first one has it.
    return lesson(world, drawn.choice(LESSONS[:-1]), drawn.choice([1, 1, 2]))


def terminated(world: World, batches: int) -> int:
    """SIGTERM: an orderly end with 143."""
    world.ahead(batches + 2)
    with Life(world, *OFTEN) as life:
        if not life.batches(batches):
            raise Broken("the driver should be working", life)
        life.process.send_signal(signal.SIGTERM)
        if life.ended(120) != 143:
            raise Broken("SIGTERM should end it with 143", life)
    world.check()
    return 1


def _terminated(world: World, drawn: random.Random) -> int:
    return terminated(world, drawn.choice([1, 2]))


def two_drivers(world: World) -> int:
    """A second driver is refused while the first works, and says by whom. The first goes on, until its JVM is killed."""
    world.ahead(5)
    with Life(world, *OFTEN) as first:
        if not first.batches(1):
            raise Broken("the first driver should be working", first)
        with Life(world, "--once") as second:
            told = f"process {first.process.pid}, since 20"
            if second.ended(60) != 3 or "in use by weever run" not in second.errors or told not in second.errors:
                raise Broken("the second driver should be refused", second)
            if second.reports:
                raise Wrong("wrong", "the second driver ran a batch")
        if not first.batches(2):
            raise Broken("the first driver should go on", first)
        first.kill("jvm")
        if first.ended(120) != 3 or "Spark's JVM was killed (SIGKILL)" not in first.errors:
            raise Broken("a driver that lost its JVM ends with 3 and a message", first)
    world.check()
    return 1


def out_of_memory(world: World) -> int:
    """Python workers may not have the memory that they need: a clear end, and all is well when they may."""
    world.ahead(2)
    world.describe(spark={"spark.executor.pyspark.memory": "160m"})
    with Life(world, "--once") as life:
        if life.ended() != 3 or "ran out of memory" not in life.errors or "hint:" not in life.errors:
            raise Broken("the driver should say that memory is short", life)
    world.check()
    world.describe()
    drained(world)
    return 1


def executor(world: World) -> int:
    """On a cluster of two machines one is lost in the midst of a batch."""
    from tests.stream.servers.cluster import Cluster

    world.ahead(6)
    with Cluster() as cluster, Life(world, "--once", master=cluster.url) as life:
        if not life.batches(2):
            raise Broken("the driver should be working", life)
        cluster.kill_a_worker()
        if life.ended() != 0:
            raise Broken("the driver should survive a lost executor", life)
    world.check(whole=True)
    return 1


def full_disk(world: World) -> int:
    """A disk of its own runs full: loud, and exact when there is room again. In a process that may mount one."""
    script = [sys.executable, "-m", "tests.crash.full_disk", str(world.folder / f"full-{world.last}")]
    done = subprocess.run(
        ["unshare", "-rm", *script], capture_output=True, text=True, env={**os.environ, "PYTHONPATH": ROOT}, timeout=900
    )
    if done.returncode != 0:
        raise AssertionError(f"the disk that ran full: {done.stdout[-2000:]} {done.stderr[-3000:]}")
    return 1


def drained(world: World) -> None:
    """All that the feed has is worked off, and published is the truth at its end."""
    with Life(world, "--once") as life:
        if life.ended() != 0:
            raise Broken("the driver should have worked off the feed", life)
    world.check(whole=True)
    if world.pager is not None:
        world.pager.check(world, world.kills)


ROUNDS: dict[str, tuple[int, Callable[[World, random.Random], int]]] = {
    "point": (6, _at_a_point),
    "random": (8, _at_random),
    "delivery": (2, _delivery),
    "lesson": (3, _lesson),
    "worker": (2, _workers),
    "sigterm": (1, _terminated),
    "two drivers": (1, lambda world, _: two_drivers(world)),
    "memory": (0, lambda world, _: out_of_memory(world)),
    "executor": (0, lambda world, _: executor(world)),
    "disk": (0, lambda world, _: full_disk(world)),
}
"""How often each is drawn, and what it does. Those with 0 are slow: each is done once, at the end."""
