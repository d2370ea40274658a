"""The first rows of a learner: whatever comes after them is newer, however small its version."""

from __future__ import annotations

from weever_stream.learn import Learner

ROWS = [{"id": at, "a": at, "b": at % 2} for at in range(1, 9)]


def test_a_small_version_is_newer_than_the_first_rows() -> None:
    learner = Learner(ROWS, key="id")
    learned = learner.apply(
        [
            {"id": 8, "_change_type": "delete", "_commit_version": 1},
            {"id": 7, "a": 1, "b": 1, "_change_type": "upsert", "_commit_version": 1},
        ]
    )
    assert learned.changes == 2
    assert len(learner) == 7
    assert learner.upsert([{"id": 7, "a": 9, "b": 0}], sequence=0).changes == 0, "older than the change"
    learner._check()


def test_of_a_key_that_stands_twice_the_last_row_counts() -> None:
    learner = Learner([*ROWS, {"id": 1, "a": 100, "b": 1}], key="id")
    assert len(learner) == 8
    assert {row["a"] for row in learner.table().to_pylist() if row["id"] == 1} == {100}
    learner._check()


def test_first_rows_with_a_sequence_are_as_old_as_they_say() -> None:
    learner = Learner(ROWS, key="id", sequence=5)
    assert learner.delete([1], sequence=4).changes == 0
    assert learner.delete([1], sequence=6).changes == 1
