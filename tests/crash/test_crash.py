"""The job dies at its worst moments, in its own process, and goes on: nothing lost, nothing twice, nothing wrong.

Catches: a batch that is told again or not at all because the driver died between state, sinks and commit; a Python
worker's death that changes an answer; a JVM that outlives its driver and works beside the next one; a second driver
that is let in; damaged files that are answered from, or that end in a Java stack trace instead of a word about them.

This is a sample of the soak, `python -m tests.crash`, with the same rounds. What is published is held to the truth,
which no driver can touch, after every death.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.crash.damage import KINDS
from tests.crash.pager import Pager
from tests.crash.points import LESSONS, POINTS
from tests.crash.rounds import delivery, drained, full_disk, killed, lesson, named_point, two_drivers, workers
from tests.crash.world import World
from weever_stream.errors import OutputError, WeeverError
from weever_stream.job.job import read_job
from weever_stream.stream.failures import texts_of, told
from weever_stream.stream.run import start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.fixture(scope="module")
def lived(tmp_path_factory: pytest.TempPathFactory) -> World:
    """A world whose drivers have died at every named point, the last one with a batch that all but Spark know of."""
    # Without snapshots of Spark's state: the changes since the last one are what a start needs.
    no_snapshots = {"spark.sql.streaming.stateStore.minDeltasForSnapshot": 1000}
    world = World(tmp_path_factory.mktemp("crash") / "world", seed=5, spark=no_snapshots)
    for number, point in enumerate(POINTS):
        # Some die in their first batch, which may be one that another has left half done, some later.
        named_point(world, point, 1 + number % 2)
    named = {path.name for path in (world.checkpoint / "commits").iterdir()}
    planned = {path.name for path in (world.checkpoint / "offsets").iterdir()}
    assert len({name for name in planned - named if name.isdigit()}) == 1, "a batch is planned and not committed"
    return world


def test_drivers_that_die_at_named_points_leave_the_truth(lived: World):
    assert lived.batches > 3
    lived.check()


def test_killed_drivers_orphaned_jvms_second_drivers_and_dead_workers(lived: World, tmp_path: Path):
    world = lived.copied(tmp_path / "world")
    killed(world, "driver", batches=1, moment=0.1)
    two_drivers(world)  # at once: the JVM of the one before may still be there
    assert workers(world, one_in=5, at_most=3) > 0, "no worker has died"


def test_drivers_that_die_around_a_delivery_leave_the_alerts_that_should_be_open(tmp_path: Path):
    with Pager() as pager:
        world = World(tmp_path / "world", seed=9, alerts=[pager.options()])
        world.pager = pager
        for point in ("after_delivery", "during_delivery", "before_delivery"):
            delivery(world, point)
        drained(world)
        assert pager.told


def test_drivers_that_die_while_they_learn_leave_the_rules_that_hold(tmp_path: Path):
    world = World(tmp_path / "world", seed=12, learns=True)
    lesson(world, "after_dump")  # the first one, of the learner that was just built
    for number, point in enumerate(LESSONS[:-1]):
        lesson(world, point, 1 + number % 2)
    drained(world)


def test_a_disk_that_runs_full_stops_the_job_and_loses_nothing(tmp_path: Path):
    # Also: the harness, which reads Delta tables and then ends, ends with 0. Its threads used to abort it.
    full_disk(World(tmp_path / "world", seed=3))


_RESTORE, _TORN = "restore", "is torn or was changed"
REFUSED = {
    "offsets torn": (rf"offsets/\d+ {_TORN}", _RESTORE),
    "offsets empty": (rf"offsets/\d+ {_TORN}", _RESTORE),
    "offsets flipped": (rf"offsets/\d+ {_TORN}", _RESTORE),
    "offset changed": (rf"offsets/\d+ {_TORN}", _RESTORE),
    "offsets gone": (r"/out/log is ahead of the checkpoint", _RESTORE),
    "commits torn": (rf"commits/\d+ {_TORN}", "delete it"),
    "commits empty": (rf"commits/\d+ {_TORN}", "delete it"),
    "state torn": ("state", _RESTORE),
    "state garbled": ("state", _RESTORE),
    "state empty": ("state", _RESTORE),
    "state gone": ("state", _RESTORE),
    "run file torn": (rf"the run file \d+/\S+\.run in \S+ {_TORN}", _RESTORE),
    "run file flipped": (rf"the run file \d+/\S+\.run in \S+ {_TORN}", _RESTORE),
    "run file gone": (r"the run file \d+/\S+\.run is missing", _RESTORE),
    "metadata empty": (rf"/metadata {_TORN}", _RESTORE),
    "metadata gone": (r"/metadata is missing", _RESTORE),
    "job note torn": (r"job\.json cannot be read", _RESTORE),
    "progress gone": (r"progress\.json is missing", _RESTORE),
    "job note gone": (r"no note of what it was made for", _RESTORE),
}
"""What is said of damage that nobody can mend but its owner, and what he is to do. Other kinds must change nothing."""


def run(spark: SparkSession, world: World) -> WeeverError | None:
    """Works off the feed in this process. What a user would be told if it fails."""
    try:
        query = start(spark, read_job(world.job, {}), lambda report: None, once=True).query
    except WeeverError as error:
        return error
    try:
        query.awaitTermination(300)
    except Exception:
        assert query.exception() is not None
    failure = query.exception()
    return None if failure is None else told(texts_of(failure))


ELSEWHERE = {
    "offsets empty", "offsets flipped", "commits empty", "state empty", "state gone", "run file flipped",
    "metadata empty", "unfinished state torn", "snapshot torn", "snapshot garbled",
}  # fmt: skip
"""Kinds that differ little from another one here: a round of the soak does them."""


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ELSEWHERE])
def test_damage_is_mended_or_refused_and_never_answered_from(
    spark: SparkSession, lived: World, tmp_path: Path, kind: str
):
    world = lived.copied(tmp_path / "world")
    harmed = KINDS[kind](world.checkpoint)
    error = run(spark, world)
    if kind not in REFUSED:
        assert error is None, f"{harmed}: {error}"
        world.check(whole=True)
        return
    assert error is not None, harmed
    message, hint = REFUSED[kind]
    assert re.search(message, error.message), error
    assert hint in (error.hint or "")
    world.check()


def test_a_checkpoint_that_is_gone_or_older_than_its_sinks_is_refused(
    spark: SparkSession, lived: World, tmp_path: Path
):
    world = lived.copied(tmp_path / "gone")
    shutil.rmtree(world.checkpoint)
    error = run(spark, world)
    assert isinstance(error, OutputError)
    assert "holds the violations of another run" in error.message

    world = lived.copied(tmp_path / "older")
    last = max(int(path.name) for path in (world.checkpoint / "offsets").iterdir() if path.name.isdigit())
    for folder in ("offsets", "commits"):
        for number in range(last - 2, last + 1):
            for name in (f"{number}", f".{number}.crc"):
                (world.checkpoint / folder / name).unlink(missing_ok=True)
    error = run(spark, world)
    assert isinstance(error, OutputError)
    assert "is ahead of the checkpoint" in error.message
    world.check()
