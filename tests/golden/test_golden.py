"""Every release reads what earlier ones wrote.

Catches: a format that was changed without a reader for the old one; rules that are planned, named or fingerprinted in
another way, so that state, ids or alerts of a running job would no longer fit; columns of output tables that changed.
"""

from __future__ import annotations

import json
import re
import tarfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests import oracle
from tests.alerts.desks import after, news
from tests.alerts.test_desk import added
from tests.golden.make import alerts_desk, learner, typed
from tests.golden.story import AFTER, BEFORE, LAST, ROWS, add, job_text, table
from weever_stream import Detector
from weever_stream.detect.identity import plain, violation_id
from weever_stream.job.job import job_of
from weever_stream.learn import Learner
from weever_stream.rules import parse_rule, read_rules_text
from weever_stream.sinks.reading import read_sink
from weever_stream.state.manifest import Manifest
from weever_stream.state.noted import Noted
from weever_stream.state.store import StoreOptions
from weever_stream.stream.saved import setup_of
from weever_stream.stream.work import ShardWork

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RELEASES = sorted(path for path in Path(__file__).parent.glob("v*") if path.is_dir())
pytestmark = pytest.mark.parametrize("release", RELEASES, ids=lambda path: path.name)


def truth(rules: Any, *, last: bool) -> set[tuple[str, str, str | None]]:
    found = oracle.violations(
        oracle.written_file(job_text("/nowhere", rules)), [typed(row) for row in table(last=last)], ("id",)
    )
    return {(rule, plain(left), None if right is None else plain(right)) for rule, left, right in found}


def opened(path: Path) -> set[tuple[str, str, str | None]]:
    kept = read_sink(str(path))
    index = kept.open_index()
    rows = [row for piece in kept.fetch(index, from_log=False) for row in piece.to_pylist()]
    assert len(rows) == index.num_rows
    for row in rows:
        assert row["violation_id"] == violation_id(row["rule"], row["left_key"], row["right_key"])
    return {(row["rule"], row["left_key"], row["right_key"]) for row in rows}


@pytest.fixture
def restored(release: Path, tmp_path: Path) -> Path:
    with tarfile.open(release / "job.tar.xz") as tar:
        # the filter came with Python 3.11.4
        tar.extractall(tmp_path, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    return tmp_path


def test_there_is_something_to_read(release: Path) -> None:
    assert truth(BEFORE, last=False) > {("price_is_positive", "1", None)}
    assert {rule for rule, _, _ in truth(AFTER, last=False)} == set(AFTER)
    assert truth(AFTER, last=True) != truth(AFTER, last=False)


def test_rules_are_understood_as_they_were(release: Path) -> None:
    for name, told in json.loads((release / "rules.json").read_text()).items():
        assert parse_rule(told["deny"], name=name).fingerprint == told["fingerprint"]
    now = {rule.name: rule.fingerprint for rule in read_rules_text(job_text("/nowhere", {**BEFORE, **AFTER})).rules}
    assert now == {name: told["fingerprint"] for name, told in json.loads((release / "rules.json").read_text()).items()}


def test_shards_are_opened_and_hold_the_violations(release: Path, tmp_path: Path) -> None:
    job = job_of(read_rules_text(job_text(tmp_path, AFTER)))
    noted = Noted.of_json(json.loads((release / "job.json").read_text()), "golden")
    setup = setup_of(noted, job, StoreOptions(str(release / "runs")))
    work = ShardWork(setup)
    counts: dict[str, int] = {}
    for path in (release / "manifests").glob("*.bin"):
        manifest = Manifest.load(path.read_bytes(), path.name)
        assert Manifest.load(manifest.dump(), "again").dump() == manifest.dump()
        for family in setup.living:
            held = work.keeper.open(family, manifest, path.name)
            held.shard._check()
            for rule, n in zip(family.rules, held.open, strict=True):
                counts[setup.rules[rule].rule.name] = counts.get(setup.rules[rule].rule.name, 0) + max(n, 0)
    true = truth(AFTER, last=False)
    assert counts == {name: sum(rule == name for rule, _, _ in true) for name in AFTER}


def test_a_dump_is_loaded(release: Path) -> None:
    detector = Detector.load(release / "detector.bin", read_rules_text(job_text("/nowhere", BEFORE)))
    found = {(one.rule, one.left_key, one.right_key) for one in detector.violations()}
    assert found == truth(BEFORE, last=False)


def test_a_learner_goes_on(release: Path) -> None:
    loaded, now = Learner.load(release / "learner.bin"), learner()
    loaded._check()
    assert [rule.fingerprint for rule in loaded.rules] == [rule.fingerprint for rule in now.rules]
    assert {rule.name for rule in loaded.rules} == {rule.name for rule in now.rules}
    assert loaded.upsert([{**typed(ROWS[0]), "id": 3}], sequence=9).changes == 0, "the drop is remembered"
    for one in (loaded, now):
        one.delete([5], sequence=12)
    assert {rule.fingerprint for rule in loaded.rules} == {rule.fingerprint for rule in now.rules}
    loaded._check()


def test_tables_and_files_are_read(release: Path, restored: Path) -> None:
    assert opened(restored / "found") == truth(AFTER, last=False)
    assert opened(restored / "told") == truth(AFTER, last=False)


def test_alerts_go_on(release: Path) -> None:
    noted = json.loads((release / "alerts.json").read_text())
    before = alerts_desk(None)
    desk = alerts_desk(noted)
    assert {key[0] for key in desk.alerts} == {"ops"}
    assert [event["event"] for event in desk.history] == ["open", "open"]
    desk.take(news(desk, desk.through + 1))
    desk.wants(after(100))
    told = [desk.sending(want, after(200)) for want in desk.wants(after(200))[0]]
    keys = {notice.dedup_key for notice in told if notice.what == "resolve"}
    before.take(news(before, 0, added(2), zips=2))
    assert keys == {before.sending(want, after(0)).dedup_key for want in before.wants(after(0))[0]}


@pytest.mark.slow
def test_a_checkpoint_goes_on(spark: SparkSession, release: Path, restored: Path) -> None:
    from weever_stream.stream.run import start

    moved(restored)
    add(restored, 3, LAST)
    job = job_of(read_rules_text(job_text(restored, AFTER)))
    reports: list[Any] = []
    query = start(spark, job, reports.append, once=True).query
    query.awaitTermination(300)
    assert query.exception() is None
    assert [report.changes for report in reports] == [len(LAST)]  # the two files before are not read again
    assert opened(restored / "found") == truth(AFTER, last=True)
    assert opened(restored / "told") == truth(AFTER, last=True)


def moved(folder: Path) -> None:
    """Lets a checkpoint be where it is now: Spark's file source remembers files by their absolute paths."""
    for log in (folder / "checkpoint" / "sources").rglob("*"):
        if log.is_file() and not log.name.startswith("."):
            log.write_text(re.sub(r'file://[^"]*?/(feed|checkpoint)/', rf"file://{folder}/\1/", log.read_text()))
            (log.parent / f".{log.name}.crc").unlink(missing_ok=True)
