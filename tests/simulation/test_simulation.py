"""Worlds under fixed seeds; and that the simulation is what it says: the same again from the same seed.

Catches: what no single test thinks of, because it takes three things at once. A worker dies while it deletes files, the
task runs again elsewhere, and the driver dies before the commit. A failing seed is printed and kept (`kept`); `python -m
tests.simulation --seed N --trace` tells its story. Fresh seeds are for soaks by hand: `python -m tests.simulation`. A
seed that failed once is added to `FAILED_BEFORE`.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.simulation.broken import FAULTS
from tests.simulation.kept import forget, keep, kept, under_way
from tests.simulation.run import Ran, found_by, run_all, run_one

QUICK, ALL = range(20), range(20, 2020)
FAILED_BEFORE = [4138587004]
"""Files that came late while a new rule was backfilled."""
QUICKLY_FOUND = {
    "retired files are deleted one batch early": 26,
    "pairs that moved are not set off": 272,
    "keys to drop anywhere are forgotten": 19,
    "rows that died in a file come back": 102,
    "a task that is tried again does nothing": 9,
}
"""Faults, and seeds that found them when this was written. `python -m tests.simulation --broken` puts in all there are."""


def assert_passed(ran: Ran) -> None:
    for seed in ran.failed:
        keep(seed)
    told = [f"python -m tests.simulation --seed {seed} --trace\n{story}" for seed, story in ran.failed.items()]
    assert not told, "\n".join(told)
    assert ran.runs, "no world was run"


def test_some_worlds_pass_and_those_that_failed_before():
    assert_passed(run_all([*FAILED_BEFORE, *kept(), *QUICK]))


@pytest.mark.slow
def test_many_worlds_pass_and_faults_strike():
    ran = run_all(ALL)
    assert_passed(ran)
    often = {"the driver is killed", "a task fails half way", "a task runs twice", "files are collected", "batches"}
    assert often <= ran.struck.keys(), "a fault that never strikes is not tested"


@pytest.mark.slow
@pytest.mark.parametrize("name", QUICKLY_FOUND)
def test_a_fault_that_is_put_in_is_found(name: str):
    assert found_by(FAULTS[name], [QUICKLY_FOUND[name], *range(200)]) is not None


def test_a_seed_tells_the_same_story_in_every_process():
    here: list[str] = []
    run_one(7, here.append)
    command = [sys.executable, "-c", "from tests.simulation.run import run_one; run_one(7, print)"]
    salted = {**os.environ, "PYTHONHASHSEED": "1"}
    there = subprocess.run(command, check=True, capture_output=True, cwd=Path(__file__).parents[2], env=salted)
    assert there.stdout.decode().splitlines() == here
    assert any(line.startswith("batch 1") for line in here)


def test_a_failure_does_not_stop_the_others_and_is_told(monkeypatch: pytest.MonkeyPatch):
    from tests.simulation.checks import Checks

    def fail(self: Checks, position: int) -> set[object]:
        return {("no_such_rule", "1", "2")}

    monkeypatch.setattr(Checks, "truth", fail)
    ran = run_all([1, 2])
    assert list(ran.failed) == [1, 2]
    assert "the log lacks 1" in ran.failed[1]


def test_seeds_are_kept_until_they_pass_even_if_the_process_dies(tmp_path: Path):
    keep(9, tmp_path)
    keep(3, tmp_path)
    over = subprocess.Popen([sys.executable, "-c", ""])
    over.wait()
    (tmp_path / f"running-{over.pid}").write_text("5")
    assert kept(tmp_path) == [3, 5, 9]
    forget(5, tmp_path)
    with under_way(tmp_path) as note:
        note.write_text("7")
    assert kept(tmp_path) == [3, 9]
