"""A thousand rules. Catches: what grows with the number of rules (memory, files, time) until a job with many of them dies.

25 columns that name a group times 40 columns that follow from it: 25 families of 40 rules each.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.stream.simulated import Simulation, change_frame, setup_of
from weever_stream.feeds.changes import DROP, PUT
from weever_stream.rules import parse_rule
from weever_stream.storage import locate, scan_delta

GROUPS = [f"g{number:02}" for number in range(25)]
VALUES = [f"v{number:02}" for number in range(40)]
NAMES = ["id", *GROUPS, *VALUES]
RULES = {
    f"{group}_{value}": f"t.{group} = s.{group} and t.{value} != s.{value}" for group in GROUPS for value in VALUES
}
Row = dict[str, Any]


def rows_of(n: int, seed: int) -> list[Row]:
    """Rows in groups of about five, with wrong values here and there."""
    random = np.random.default_rng(seed)
    group = random.integers(0, n // 5, n)
    columns = {"id": np.arange(n)} | {name: (group * (2 * at + 1)) % 9973 for at, name in enumerate(GROUPS)}
    for at, name in enumerate(VALUES):
        columns[name] = np.where(random.random(n) < 0.01, 1000 + random.integers(0, 9, n), (group + at) % 97)
    return [dict(zip(NAMES, row, strict=True)) for row in np.stack([columns[name] for name in NAMES], 1).tolist()]


def truth(rows: list[Row]) -> Iterator[tuple[str, str, str]]:
    for group in GROUPS:
        together: dict[int, list[Row]] = {}
        for row in rows:
            together.setdefault(row[group], []).append(row)
        for members in together.values():
            for left, right in combinations(members, 2):
                keys = (str(left["id"]), str(right["id"]))
                yield from ((f"{group}_{value}", *keys) for value in VALUES if left[value] != right[value])


def test_in_shards_without_spark(tmp_path: Path):
    rules = [parse_rule(text, name=name) for name, text in RULES.items()]
    schema = pa.schema([(name, pa.int64()) for name in NAMES])
    stream = Simulation(setup_of(rules, schema, ["id"], tmp_path, shards=4), check=False)
    before, after = rows_of(100, 1), rows_of(100, 2)
    stream.batch([change_frame([(PUT, 1, row) for row in before], schema)])
    assert set(stream.open) == set(truth(before))
    changes = [(kind, 2, row) for kind, rows in ((DROP, before), (PUT, after)) for row in rows]
    stream.batch([change_frame(changes, schema)])
    assert set(stream.open) == set(truth(after))


@pytest.mark.slow
def test_with_a_small_heap(tmp_path: Path):
    """Two batches: one that only adds, and one that changes every row and so nearly every violation."""
    feed, out = tmp_path / "feed", tmp_path / "out"
    feed.mkdir()
    before, after = rows_of(200, 3), rows_of(200, 4)
    commits = {1: [("insert", row) for row in before]}
    commits[2] = [("update_preimage", row) for row in before] + [("update_postimage", row) for row in after]
    for version, changes in commits.items():
        lines = [json.dumps({**row, "_change_type": kind, "_commit_version": version}) for kind, row in changes]
        (feed / f"{version}.json").write_text("\n".join(lines))
        os.utime(feed / f"{version}.json", (version, version))
    job = {
        "table": "many",
        "key": "id",
        "columns": dict.fromkeys(NAMES, "bigint"),
        "rules": [{"name": name, "deny": text} for name, text in RULES.items()],
        "source": {"kind": "files", "path": str(feed), "remember_drops": 0, "options": {"maxFilesPerTrigger": 1}},
        "sinks": [{"kind": "delta", "path": str(out)}],
        "state": {"checkpoint": str(tmp_path / "checkpoint"), "shards": 4},
        "spark": {"spark.driver.memory": "768m", "spark.master": "local[2,4]"},
    }
    (tmp_path / "job.yaml").write_text(json.dumps(job))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    environment |= {"PYTHONPATH": str(Path(__file__).parents[2])}
    command = [sys.executable, "-m", "weever_stream.cli", "run", "job.yaml", "--once", "--format", "json"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=tmp_path, timeout=900)
    assert done.returncode == 0, done.stderr
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    assert [report["changes"] for report in reports] == [200, 400]
    expected = set(truth(after))
    assert reports[0]["added"] == len(set(truth(before)))
    still_open = DeltaTable(str(out / "open"))
    columns = scan_delta(still_open, locate(out / "open")).to_table(["rule", "left_key", "right_key"]).to_pydict()
    pairs = zip(columns["rule"], columns["left_key"], columns["right_key"], strict=True)
    assert {(rule, *sorted(keys, key=int)) for rule, *keys in pairs} == expected
    assert len(still_open.file_uris()) < 20, "not a file for each rule"
