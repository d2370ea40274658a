"""Alerts from a real stream: what is told follows the truth, in small batches and large, over restarts and rule changes.

Catches: counts that are not those of the batch; groups counted wrongly where partitions count apart; an alert that a
removed rule or a restart leaves open; a repeated batch that is counted twice.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.alerts.test_dispatch import Inbox
from tests.stream.jobs import RULES, Stream, job_text
from tests.stream.test_files_stream import Feed, Folder, together
from weever_stream.alerts.dispatch import Dispatch
from weever_stream.alerts.news import group_id
from weever_stream.job.alerts import alert_options
from weever_stream.job.routes import routes_of
from weever_stream.state.notes import Notes
from weever_stream.stream import alerting
from weever_stream.stream.alerting import AlertIntake
from weever_stream.stream.places import notes_of
from weever_stream.stream.run import allow, start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from weever_stream.sinks.batch import Batch

pytestmark = pytest.mark.slow

GROUPED = {"group_by": "equality", "values": ["a"]}


class Follower:
    """Knows from what it was told which alerts are open, and with how many."""

    def __init__(self) -> None:
        self.open: dict[str, int] = {}

    def follow(self, inbox: Inbox) -> None:
        for one in inbox.sent:
            assert (one.what == "open") == (one.dedup_key not in self.open), "opened once, and resolved once"
            if one.what == "resolve":
                assert one.open == 0
                del self.open[one.dedup_key]
            else:
                self.open[one.dedup_key] = one.open


class Openings:
    """A sink that knows the violations that are open, each with the value of `a` with which it was opened."""

    def __init__(self) -> None:
        self.open: dict[str, tuple[str, str]] = {}

    def write(self, batch: Batch) -> None:
        for row in batch.deltas.collect():
            if row.change == "added":
                self.open[row.violation_id] = (row.rule, str(json.loads(row.left_values)["a"]))
            else:
                self.open.pop(row.violation_id, None)

    def expected(self) -> dict[str, int]:
        """The alerts that should be open: one for the rule on one row, one for each value of `a` of the other."""
        grouped = [
            "weever/nightly/rows/one_row"
            if rule == "one_row"
            else f"weever/nightly/rows/{rule}/{group_id(rule, ['a'], {'a': a})}"
            for rule, a in self.open.values()
        ]
        return dict(Counter(grouped))


def told(stream: Stream, openings: Openings, follower: Follower) -> None:
    """Runs what is there with one target, and follows what it is told."""
    inbox = Inbox()
    options = alert_options.validate_python(
        {"kind": "log", "name": "ops", "quiet": "0 seconds", "update_every": "0 seconds", "max_alerts": 1000}
    )
    routes = routes_of([options], stream.job.file.rules)
    dispatch = Dispatch("rows", routes, [inbox], Notes(notes_of(stream.job)), job="nightly")
    query = start(
        stream.spark,
        stream.job,
        stream.reports.append,
        once=True,
        also=[openings, AlertIntake(dispatch)],
        approve=allow,
    ).query
    query.awaitTermination(300)
    assert query.exception() is None
    with dispatch:  # all of it first: what is told then is what is open at the end
        assert dispatch.drain()
    follower.follow(inbox)


@pytest.mark.parametrize("few", [20_000, 0], ids=["in the driver", "on workers"])
def test_what_is_told_is_what_is_open(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    monkeypatch.setattr(alerting, "_FEW", few)
    (tmp_path / "feed").mkdir()
    rules = {"dependency": {**RULES["dependency"], "alerts": GROUPED}, "one_row": RULES["one_row"]}
    source = {"kind": "files", "path": f"{tmp_path}/feed"}
    stream, openings, follower = Stream(spark, job_text(source, tmp_path, rules)), Openings(), Follower()
    feed = Feed(seed=3, keys=24)
    for _ in range(2):
        Folder(tmp_path / "feed").add(together(feed.commits(12)))
        told(stream, openings, follower)
        assert follower.open == openings.expected()
    assert '"c"' not in (tmp_path / "checkpoint/weever/alerts.json").read_text()  # a column that may not be shown

    stream.revised(job_text(source, tmp_path, {"dependency": rules["dependency"]}))
    told(stream, openings, follower)
    assert follower.open == openings.expected()
