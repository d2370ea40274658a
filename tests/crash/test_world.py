"""The judge of the harness is judged: sinks that are right pass, and each way of being wrong is seen.

Catches: a harness that would call anything the truth. The sinks are written here as a job would, without Spark.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, write_deltalake

from tests.crash.learned import EVENTS, check_learned, rules_at
from tests.crash.world import Violation, World
from tests.crash.wrong import Wrong

_COLUMNS = ("rule", "violation_id", "left_key", "right_key", "change", "source_position")
_LOG = pa.schema([*((name, pa.string()) for name in _COLUMNS), ("batch_id", pa.int64())])
_OPEN = pa.schema([(name, pa.string()) for name in ("rule", "left_key", "right_key")])


class Job:
    """Publishes the truth, position by position."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.out = str(world.folder / "out")
        write_deltalake(f"{self.out}/log", pa.table([[]] * len(_LOG), schema=_LOG))
        write_deltalake(f"{self.out}/open", pa.table([[]] * len(_OPEN), schema=_OPEN))
        self.open: frozenset[Violation] = frozenset()

    def batch(self, number: int) -> None:
        now = self.world.truth(number)
        rows = [self.row(number, one, "added") for one in now - self.open]
        rows += [self.row(number, one, "removed") for one in self.open - now]
        self.log(rows, number)
        self.lines(rows, number)
        self.rewrite_open(now, number)
        counts = {rule.name: sum(one[0] == rule.name for one in now) for rule in self.world.rules}
        note = self.world.checkpoint / "weever" / "progress.json"
        note.parent.mkdir(parents=True, exist_ok=True)
        note.write_text(json.dumps({"position": self.at(number), "open": counts}))
        self.open = now

    @staticmethod
    def at(number: int) -> str:
        return json.dumps({"entry": number})

    def row(self, number: int, violation: Violation, change: str) -> dict[str, Any]:
        rule, left, right = violation
        told = dict(zip(_COLUMNS, (rule, str(violation), left, right, change, self.at(number)), strict=True))
        return {**told, "batch_id": number}

    def log(self, rows: list[dict[str, Any]], number: int) -> None:
        self._write("log", pa.Table.from_pylist(rows, schema=_LOG), number, "append")

    def rewrite_open(self, now: Any, number: int) -> None:
        rows = [dict(zip(_OPEN.names, one, strict=True)) for one in now]
        self._write("open", pa.Table.from_pylist(rows, schema=_OPEN), number, "overwrite")

    def _write(self, name: str, rows: pa.Table, number: int, mode: Any) -> None:
        told = {"userMetadata": json.dumps({"batch_id": number, "source_position": self.at(number)})}
        properties = CommitProperties(custom_metadata=told)
        write_deltalake(f"{self.out}/{name}", rows, mode=mode, commit_properties=properties)

    def lines(self, rows: list[dict[str, Any]], number: int) -> None:
        folder = self.world.folder / "lines" / f"batch_id={number}"
        folder.mkdir(parents=True)
        (folder / "part.json").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        (folder / "_SUCCESS").touch()


@pytest.fixture
def job(tmp_path: Path) -> Job:
    made = Job(World(tmp_path / "world", seed=3))
    made.world.grow(3)
    for number in range(3):
        made.batch(number)
        made.world.check()
    return made


def test_the_truth_passes_and_a_feed_that_is_not_worked_off_does_not(job: Job):
    world = job.world
    assert world.position == 2
    assert len({rule for rule, _, _ in world.truth(2)}) == len(world.rules), "every rule has violations"
    with pytest.raises(Wrong, match="lost: the feed is at 3, published is 2"):
        world.check(whole=True)
    job.batch(3)
    world.check(whole=True)


def test_the_last_batch_may_be_in_the_log_alone(job: Job):
    job.batch(3)
    shutil.rmtree(job.world.folder / "lines" / "batch_id=3")
    job.world.check()


def _twice_in_the_log(job: Job) -> None:
    job.log([job.row(2, next(iter(job.open)), "added")] * 2, 2)


def _added_again(job: Job) -> None:
    job.log([job.row(3, next(iter(job.open)), "added")], 3)


def _lost_from_the_log(job: Job) -> None:
    DeltaTable(f"{job.out}/log").delete(f"left_key = '{next(iter(job.open))[1]}'")


def _extra_in_open(job: Job) -> None:
    job.rewrite_open({*job.open, ("dependency", "98", "99")}, 2)


def _missing_in_open(job: Job) -> None:
    job.rewrite_open(list(job.open)[1:], 2)


def _open_twice(job: Job) -> None:
    job.rewrite_open([*job.open, next(iter(job.open))], 2)


def _open_of_another_position(job: Job) -> None:
    job.rewrite_open(job.world.truth(1), 2)


def _open_goes_back(job: Job) -> None:
    job.rewrite_open(job.world.truth(1), 1)


def _a_version_in_between(job: Job) -> None:
    job.rewrite_open([], 2)
    job.rewrite_open(job.open, 2)


def _no_folder(job: Job) -> None:
    shutil.rmtree(job.world.folder / "lines" / "batch_id=1")


def _another_folder(job: Job) -> None:
    part = job.world.folder / "lines" / "batch_id=1" / "part.json"
    part.write_text(part.read_text() * 2)


def _wrong_counts(job: Job) -> None:
    note = job.world.checkpoint / "weever" / "progress.json"
    note.write_text(json.dumps({"position": job.at(2), "open": {"dependency": 1}}))


@pytest.mark.parametrize(
    ("harm", "kind"),
    [
        (_twice_in_the_log, "duplicated"),
        (_added_again, "wrong"),
        (_lost_from_the_log, "wrong"),
        (_extra_in_open, "wrong"),
        (_missing_in_open, "wrong"),
        (_open_twice, "duplicated"),
        (_open_of_another_position, "wrong"),
        (_open_goes_back, "wrong"),
        (_a_version_in_between, "wrong"),
        (_no_folder, "lost"),
        (_another_folder, "wrong"),
        (_wrong_counts, "wrong"),
    ],
)
def test_what_is_wrong_is_seen(job: Job, harm: Any, kind: str):
    harm(job)
    with pytest.raises(Wrong) as seen:
        job.world.check()
    assert seen.value.kind == kind


@pytest.fixture
def learning(tmp_path: Path) -> World:
    """A world whose rules were told, position by position."""
    world = World(tmp_path / "world", seed=3, learns=True)
    world.grow(3)
    held: frozenset[str] = frozenset()
    for number in range(4):
        now = rules_at(world, number)
        told = [("dropped", rule) for rule in held - now] + [("added", rule) for rule in now - held]
        assert told, "rules come or go at every position"
        write_rules(world, told, number)
        held = now
        check_learned(world)
    return world


def write_rules(world: World, told: list[tuple[str, str]], number: int) -> None:
    rows = [{"event": event, "rule_fingerprint": rule, "deny": rule, "batch_id": number} for event, rule in told]
    table = pa.Table.from_pylist([{**row, "source_position": Job.at(number)} for row in rows])
    write_deltalake(str(world.folder / EVENTS), table, mode="append")


def test_rules_that_were_told_as_they_are_pass_when_all_was_learned(learning: World):
    with pytest.raises(Wrong, match="lost: the feed is at 3, learned is -1"):
        check_learned(learning, whole=True)
    note = learning.checkpoint / "weever" / "learn" / "weever" / "progress.json"
    note.parent.mkdir(parents=True)
    note.write_text(json.dumps({"position": Job.at(3)}))
    check_learned(learning, whole=True)


def test_a_rule_that_is_not_told_is_seen(learning: World):
    one = min(rules_at(learning, 3))
    DeltaTable(str(learning.folder / EVENTS)).delete(f"rule_fingerprint = '{one}'")
    with pytest.raises(Wrong, match="are not those of the table"):
        check_learned(learning)


def test_a_rule_that_comes_again_without_having_gone_is_seen(learning: World):
    write_rules(learning, [("added", min(rules_at(learning, 3)))], 3)
    with pytest.raises(Wrong, match="duplicated: batch 3 tells"):
        check_learned(learning)
