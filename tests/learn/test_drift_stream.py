"""Drift through the whole job: from files of changes to the note, the log, the metric and the command.

Catches: a notice that a restart tells again or forgets; a repeated batch that counts twice; one wrong row with hundreds
of partners that is taken for many; a pair that only moved to another shard and is taken for a new one; a rule that is
filled late and is taken for one that breaks.
"""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.stream.jobs import Stream, job_text
from tests.stream.test_files_stream import Folder
from weever_stream.cli import run
from weever_stream.observe.metrics import Metrics
from weever_stream.observe.watch import Watch
from weever_stream.rules import read_rules_text
from weever_stream.state.notes import Notes
from weever_stream.stream.places import notes_of
from weever_stream.stream.progress import PROGRESS, trends_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RULES = {
    "zip_determines_city": {"fd": "a -> c"},
    "n_rises_with_f": {"deny": "t.n < s.n and t.f > s.f"},
    "b_is_small": {"deny": "t.b > 100"},
}
LATE = {"n_is_large": {"deny": "t.n < 60"}}


class Table:
    """Rows of zips and cities; twenty rows a zip."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.rows, self.version = Folder(folder), 0, 0

    def add(self, good: int, bad: int = 0, zips: int = 100) -> None:
        """A file: so many changes, of which some name another city than all rows of their zip before them."""
        self.version += 1
        records: list[dict[str, Any]] = []
        for at in range(good + bad):
            number = self.rows + at
            zip_code = number % zips
            city = f"other {number}" if at < bad else f"city {zip_code}"
            records.append({"id": number, "a": zip_code, "b": 1, "n": number, "f": float(number), "c": city})
        self.rows += good + bad
        self.folder.add([{**one, "_change_type": "insert", "_commit_version": self.version} for one in records])


def test_a_feed_that_turns_bad_is_told_once_over_restarts(
    spark: SparkSession,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capsys: pytest.CaptureFixture[str],
) -> None:
    table = Table(tmp_path / "feed")
    text = job_text({"kind": "files", "path": str(tmp_path / "feed")}, tmp_path, RULES)
    (tmp_path / "job.yaml").write_text(text)
    stream = Stream(spark, text)
    metrics = Metrics("nightly", "rows", read_rules_text(text).rules)
    watch = Watch(metrics)
    caplog.set_level(logging.INFO, "weever_stream.job")

    def batch() -> list[tuple[str, str]]:
        """A start that does what is there; the notices of it."""
        before = len(stream.reports)
        stream.run()
        for report in stream.reports[before:]:
            watch.batch(report)
        return [(one["event"], one["rule"]) for report in stream.reports[before:] for one in report.drift]

    table.add(2_000)
    assert batch() == []
    assert metrics_of(metrics) == {"zip_determines_city": 0, "n_rises_with_f": 0, "b_is_small": 0}
    table.add(99, bad=1)  # one row, and some twenty partners
    assert batch() == []
    table.add(60, bad=40)
    assert batch() == []
    known = noted(stream)
    assert sum(known._watched["zip_determines_city"].buckets.values()) == pytest.approx(41, abs=1)
    assert list(known._watched) == ["zip_determines_city"]

    # The batch was noted and not committed: it is repeated, and counts no more than before.
    [commit] = (tmp_path / "checkpoint" / "commits").glob("2")
    commit.unlink()
    (commit.parent / ".2.crc").unlink()
    assert batch() == []
    assert noted(stream).as_json() == known.as_json()

    table.add(60, bad=40)
    assert batch() == [("began", "zip_determines_city")]
    assert metrics_of(metrics) == {"zip_determines_city": 1, "n_rises_with_f": 0, "b_is_small": 0}
    table.add(60, bad=40)
    assert batch() == [], "it is told already"
    events = [(record.getMessage(), record.weever) for record in caplog.records if "drift" in record.getMessage()]  # type: ignore[attr-defined]
    assert [(event, fields["rule"]) for event, fields in events] == [("rule_drifts", "zip_determines_city")]
    assert "other" not in str(events), "no value of a row is logged"

    capsys.readouterr()
    assert run(["rules", "drift", str(tmp_path / "job.yaml")]) == 6
    shown = capsys.readouterr().out
    assert "1 of 3 rules drift" in shown
    assert run(["rules", "drift", str(tmp_path / "job.yaml"), "--format", "json"]) == 6
    told = json.loads(capsys.readouterr().out)
    assert [(one["name"], bool(one["drifting"])) for one in told["rules"]] == [
        ("zip_determines_city", True),
        ("n_rises_with_f", False),
        ("b_is_small", False),
    ]
    assert told["rules"][0]["open"] == stream.reports[-1].open["zip_determines_city"] > 0

    # Another rule for the one that drifts, which all that is there breaks: filling it is no news, and the notice ends.
    rest = {name: rule for name, rule in RULES.items() if name != "zip_determines_city"}
    stream.revised(job_text({"kind": "files", "path": str(tmp_path / "feed")}, tmp_path, {**rest, **LATE}))
    table.add(100)
    assert batch() == [("ended", "zip_determines_city")]
    assert stream.reports[-1].drifting == []
    assert stream.reports[-1].open["n_is_large"] == 60
    late = noted(stream).trend("n_is_large")
    assert (late.baseline, late.drifting) == (0.0, None)


def noted(stream: Stream) -> Any:
    return trends_of(Notes(notes_of(stream.job)).read(PROGRESS))


def metrics_of(metrics: Metrics) -> dict[str, float]:
    [family] = [one for one in metrics.collect() if one.name == "weever_rule_drift"]
    return {sample.labels["rule"]: sample.value for sample in family.samples}
