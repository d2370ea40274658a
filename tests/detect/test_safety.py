"""What must hold when something gives way: memory, room for sequences, room for remembered drops; and typed columns.

Catches: rows or counts lost by a merge that fails, rows that vanish because no sequence is left, a history that grows
without bound, `columns:` of a rule file that the detector reads otherwise than `check` does.
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from weever_stream import Detector
from weever_stream.check import check
from weever_stream.detect import shard
from weever_stream.detect.run import Run
from weever_stream.rules import read_rules_text


def rows(start: int, stop: int) -> list[dict[str, int]]:
    return [{"id": number, "a": number % 50, "b": number % 7} for number in range(start, stop)]


def test_a_merge_that_runs_out_of_memory_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    detector = Detector(["t.a = s.a and t.b != s.b"], key="id")
    detector.insert(rows(0, 400))
    before, count = {v.id for v in detector.violations()}, detector.count("rule_1")

    def fails(*args: object) -> Run:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(Run, "merged", fails)
        with pytest.raises(MemoryError):
            detector.upsert(rows(300, 700))
    detector._check()
    assert len(detector) == 400
    assert detector.count("rule_1") == count
    assert {v.id for v in detector.violations()} == before
    detector.upsert(rows(300, 700))
    detector._check()
    assert len(detector) == 700


@pytest.mark.parametrize("one_sequence", [True, False])
def test_remembered_drops_are_bounded_also_over_restarts(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, one_sequence: bool
) -> None:
    monkeypatch.setattr(shard, "DROPS_REMEMBERED", 10)
    detector = Detector(["t.a = s.a"], key="id", schema={"id": "bigint", "a": "bigint"})
    for turn in range(12):
        detector.delete(list(range(15 * turn, 15 * turn + 15)), sequence=1 if one_sequence else turn)
        detector.dump(tmp_path / "state")
        detector = Detector.load(tmp_path / "state", ["t.a = s.a"], key="id")
    engine = detector._engine
    assert engine is not None
    held = sum(len(part) - len(part.dead) for part in engine[0].forest)
    assert held <= 2 * 10 + 15
    # The newest are still known: a put that is older than its drop stays out.
    detector.insert({"id": 15 * 12 - 1, "a": 1}, sequence=0)
    assert len(detector) == 0


def test_columns_of_a_rule_file_are_typed_as_check_types_them() -> None:
    text = "table: x\nkey: id\ncolumns: {zip: string, day: date}\nrules:\n  - {name: r, deny: t.zip = s.zip and t.day < s.day}"
    file = read_rules_text(text)
    table = pa.table({"id": [1, 2, 3], "zip": [7, 7, 8], "day": ["2024-01-01", "2024-01-02", "2024-01-03"]})
    detector = Detector(file)
    assert [(v.left_key, v.right_key) for v in detector.insert(table)] == [("1", "2")]
    assert check(file, table).results[0].violations == 1
    # The types are known before any value is.
    empty = Detector(file)
    empty.insert(pa.table({"id": [9], "zip": pa.nulls(1), "day": pa.nulls(1)}))
    assert [(v.left_key, v.right_key) for v in empty.insert(table)] == [("1", "2")]
    # A partial schema is filled up by the file.
    assert len(Detector(file, schema={"id": "bigint"}).insert(table)) == 1


def test_rows_upserted_again_report_nothing_however_many_pairs_they_are_in() -> None:
    detector = Detector(["t.a = s.a"], key="id")
    table = pa.table({"id": range(700), "a": [1] * 700})
    assert len(detector.insert(table)) == 700 * 699 // 2
    assert len(detector.upsert(table)) == 0
    assert detector.count("rule_1") == 700 * 699 // 2
