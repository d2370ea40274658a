"""The job on a cluster: shards live in executors of other machines, and Python workers in processes without our files.

Catches: code or settings that only the driver has; state that does not follow a shard from one worker to another.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests import oracle
from tests.stream.jobs import job_text
from tests.stream.servers.cluster import Cluster
from tests.stream.test_files_stream import Feed, Folder, together

ROOT = str(Path(__file__).parents[2])


@pytest.mark.slow
def test_a_job_on_two_workers_finds_the_truth(tmp_path: Path):
    feed, folder = Feed(31), Folder(tmp_path / "feed")
    for _ in range(3):
        folder.add(together(feed.commits(10)))
    settings = {
        "spark.driver.host": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.sql.shuffle.partitions": 2,
        "spark.executorEnv.PYTHONPATH": ROOT,
    }
    source = {"kind": "files", "path": str(folder.path), "options": {"maxFilesPerTrigger": 1}}
    sink = {"kind": "files", "path": str(tmp_path / "out")}
    job = tmp_path / "job.yaml"
    job.write_text(job_text(source, tmp_path, sinks=[sink], spark=settings, inline_bytes=0))
    with Cluster() as cluster:
        done = subprocess.run(
            [sys.executable, "-m", "weever_stream.cli", "run", str(job), "--once", "--format", "json", "--master", cluster.url],
            capture_output=True,
            text=True,
            env={**os.environ, "PYTHONPATH": ROOT},
            timeout=500,
        )  # fmt: skip
    assert done.returncode == 0, done.stderr
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(reports) == 3
    summed: Counter[tuple[str, str, str | None]] = Counter()
    for file in (tmp_path / "out").rglob("*.json"):
        for line in file.read_text().splitlines():
            row = json.loads(line)
            summed[row["rule"], row["left_key"], row["right_key"]] += 1 if row["change"] == "added" else -1
    rules = oracle.written_file(job.read_text())
    expected = {
        (rule, str(left), None if right is None else str(right))
        for rule, left, right in oracle.violations(rules, feed.table.values(), "id")
    }
    assert len({rule for rule, _, _ in expected}) > 2
    assert set(+summed) == expected
    assert reports[-1]["open"] == {rule.name: sum(one[0] == rule.name for one in expected) for rule in rules}
