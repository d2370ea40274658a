"""Changes with a sequence and changes without one. Catches: a load that makes a later change stale because it consumed
sequences, a load that overwrites a newer change, an order that a dump forgets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pytest

from weever_stream import Detector
from weever_stream.learn import ErrorWatch, Learner

RULE = "t.zip = s.zip and t.city != s.city"
ROWS = [{"id": at, "zip": 1, "city": "Rome"} for at in range(10)]
CHANGED = {"id": 9, "zip": 1, "city": "Lima"}
LOADS: dict[str, Callable[[Any], Any]] = {
    "dicts": lambda target: target.insert(ROWS),
    "upsert": lambda target: target.upsert(ROWS),
    "Arrow": lambda target: target.insert(pa.Table.from_pylist(ROWS)),
    "frame": lambda target: target.insert(pd.DataFrame(ROWS)),
    "apply without versions": lambda target: target.apply([{**row, "_change_type": "insert"} for row in ROWS]),
    "twice": lambda target: [target.insert(ROWS), target.insert(ROWS)],
    "dropped and loaded again": lambda target: [target.insert(ROWS), target.delete([9]), target.insert(ROWS[9])],
}


def detector() -> Detector:
    return Detector([RULE], key="id", schema={"id": "bigint", "zip": "bigint", "city": "string"})


@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("load", LOADS)
def test_a_change_with_a_sequence_is_newer_than_rows_loaded_without_one(load: str, version: int) -> None:
    target = detector()
    LOADS[load](target)
    stale = target.tally.stale
    update = {"_change_type": "update_postimage", "_commit_version": version, **CHANGED}
    assert len(target.apply([update]).added) == 9
    assert target.tally.stale == stale
    assert len(target.delete([9], sequence=version + 1).removed) == 9
    target._check()


@pytest.mark.parametrize("load", LOADS)
def test_rows_loaded_after_a_change_with_a_sequence_do_not_overwrite_it(load: str) -> None:
    target = detector()
    target.upsert(CHANGED, sequence=5)
    target.upsert({**CHANGED, "id": 8}, sequence=5)
    target.delete([8], sequence=6)
    LOADS[load](target)
    assert len(target) == 9, "the drop is newer than the load"
    assert target.count("rule_1") == 8, "and so is the change"
    target._check()


def test_changes_without_a_sequence_count_in_the_order_in_which_they_arrive() -> None:
    target = detector()
    target.insert(ROWS)
    assert len(target.upsert(CHANGED).added) == 9
    assert len(target.delete([9]).removed) == 9
    assert len(target.insert(CHANGED).added) == 9
    assert target.tally.stale == 0


def test_the_order_is_part_of_a_dump(tmp_path: Path) -> None:
    target = detector()
    target.insert(ROWS)
    target.dump(tmp_path / "state")
    for sequence in (None, 0):
        loaded = Detector.load(tmp_path / "state", [RULE], key="id")
        assert len(loaded.upsert(CHANGED, sequence=sequence).added) == 9
        assert loaded.tally.stale == 0


def test_a_table_without_a_key_is_loaded_and_then_follows_sequences() -> None:
    target = Detector([RULE])
    target.insert([{"zip": 1, "city": "Rome"}, {"zip": 1, "city": "Lima"}])
    assert len(target.delete([2], sequence=0).removed) == 1


def test_errors_follow_changes_with_small_versions() -> None:
    watch = ErrorWatch([RULE], ROWS, key="id", error=0.1)
    assert [one.rule for one in watch.apply([{"_change_type": "upsert", "_commit_version": 1, **CHANGED}]).left] == [
        "rule_1"
    ]


def test_a_learner_orders_changes_as_a_detector_does(tmp_path: Path) -> None:
    learner = Learner(ROWS, key="id")
    learner.insert([{"id": 10, "zip": 2, "city": "Bonn"}, {"id": 11, "zip": 3, "city": "Bonn"}])
    learner.dump(tmp_path / "state")
    for one in (learner, Learner.load(tmp_path / "state")):
        assert one.upsert([{**CHANGED, "id": 10}]).changes == 1
        assert one.upsert([{**CHANGED, "id": 10}], sequence=0).changes == 1
        assert one.delete([11], sequence=0).changes == 1
        assert one.upsert([{**CHANGED, "id": 10}, {**CHANGED, "id": 11}]).changes == 0, "older than both"
        assert one.insert([{**CHANGED, "id": 12}]).changes == 1, "of a key that is new"
        one._check()
