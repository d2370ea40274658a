"""Makes the golden files of this release: `python -m tests.golden.make v0.1`. Once, before it is released."""

from __future__ import annotations

import json
import shutil
import sys
import tarfile
import tempfile
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from tests.golden.story import AFTER, BEFORE, COLUMNS, ROWS, add, job_text
from weever_stream.feeds.changes import DROP_ANYWHERE, PUT_ANYWHERE
from weever_stream.state.manifest import Manifest
from weever_stream.state.store import StoreOptions

HERE = Path(__file__).parent


def main(version: str) -> None:
    """Everything."""
    from weever_stream import Detector
    from weever_stream.job.job import job_of
    from weever_stream.rules import read_rules_text, write_rule
    from weever_stream.stream.places import notes_of, runs_of
    from weever_stream.stream.run import allow, start
    from weever_stream.stream.saved import saved_setup
    from weever_stream.stream.session import session

    target = HERE / version
    target.mkdir()
    work = Path(tempfile.mkdtemp())
    spark = session(["delta"], master="local[2,4]", conf={"spark.sql.shuffle.partitions": "2"})
    try:
        add(work, 1, ROWS[:16])
        for rules, changes in ((BEFORE, (2, ROWS[16:], [3, 8])), (AFTER, None)):
            job = job_of(read_rules_text(job_text(work, rules)))
            if changes:
                add(work, *changes)
            start(spark, job, print, once=True, approve=allow).query.awaitTermination()
        setup = saved_setup(job, notes_of(job), runs_of(job))
    finally:
        spark.stop()
    make_shards(target, setup)
    make_alerts(target)
    make_learner(target)
    shutil.copy(work / "checkpoint" / "weever" / "job.json", target / "job.json")
    with tarfile.open(target / "job.tar.xz", "w:xz") as tar:
        for name in ("checkpoint", "found", "told"):
            tar.add(work / name, name)
    rules_of = [bound.rule for bound in setup.rules]
    told = {rule.name: {"fingerprint": rule.fingerprint, "deny": write_rule(rule)} for rule in rules_of}
    (target / "rules.json").write_text(json.dumps(told, indent=1, ensure_ascii=False))
    detector = Detector(read_rules_text(job_text(work, BEFORE)))
    detector.insert([typed(row) for row in ROWS])
    detector.delete([3, 8])
    detector.dump(target / "detector.bin")
    shutil.rmtree(work)


def alerts_desk(noted: Any) -> Any:
    """A desk with one target and groups."""
    from tests.alerts.desks import desk, rules, target

    return desk(target(), of=rules("alerts: {group_by: equality, values: all}"), noted=noted)


def make_alerts(target: Path) -> None:
    """The note of a desk that has told of two groups."""
    from tests.alerts.desks import after, news
    from tests.alerts.test_desk import added, deliver

    desk = alerts_desk(None)
    desk.take(news(desk, 0, added(2), zips=2))
    deliver(desk, after(0))
    (target / "alerts.json").write_text(json.dumps(desk.noted(), indent=1) + "\n")


def learner() -> Any:
    """A learner that watches sets, has forgotten rows, and remembers drops."""
    from weever_stream.learn import Learner

    learner = Learner([typed(row) for row in ROWS[:16]], key="id", small=4, max_predicates=3)
    learner.upsert([typed(row) for row in ROWS[16:]], sequence=10)
    learner.delete([3, 8], sequence=11)
    return learner


def make_learner(target: Path) -> None:
    """Its dump."""
    learner().dump(target / "learner.bin")


def make_shards(target: Path, setup: Any) -> None:
    """The same rows through the shards alone, with leaves so small that there are trees and run files."""
    from tests.detect.drawn import small_runs
    from tests.stream.simulated import Simulation, change_frame

    stream = Simulation(replace(setup, store=StoreOptions(str(target / "runs")), inline_bytes=1500))
    with small_runs():
        for at in range(0, len(ROWS), 8):
            puts = [(PUT_ANYWHERE, at + 1, typed(row)) for row in ROWS[at : at + 8]]
            stream.batch([change_frame(puts, setup.columns)])
        stream.batch([change_frame([(DROP_ANYWHERE, 99, {"id": key}) for key in (3, 8)], setup.columns)])
    (target / "manifests").mkdir()
    for shard, state in stream.states.items():
        (target / "manifests" / f"{shard}.bin").write_bytes(state)
    live = {name for state in stream.states.values() for name in Manifest.load(state, "").live()}
    assert live, "there are run files to keep"


def typed(row: dict[str, Any]) -> dict[str, Any]:
    """A row with Python's own values."""
    read = {"date": date.fromisoformat, "timestamp": datetime.fromisoformat, "decimal(10,2)": Decimal}
    return {name: read.get(kind, lambda value: value)(row[name]) for name, kind in COLUMNS.items()}


if __name__ == "__main__":
    main(sys.argv[1])
