"""A real job, watched from outside from its first second to its end: one `weever run` as a process of its own.

Catches: metrics that are there only after the first batch, or that a batch does not reach; a job that looks stuck while
it waits for changes; lines on standard error that are no JSON, Spark's own too; values of rows in any of it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.conftest import SETTINGS
from tests.observe.test_metrics import Samples, fetch, samples, value

ROOT = str(Path(__file__).parents[2])
CANARY = "CANARY7431"
"""Part of every text of every row."""
RULE = {"rule": "dependency", "severity": "critical"}
LAUNCHER = ("NOTE: Picked up", "WARNING: Using incubator")
"""What Java says before it reads any settings of ours."""
_Found = TypeVar("_Found")


def within(seconds: float, look: Callable[[], _Found | None], what: str) -> _Found:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if (found := look()) is not None:
            return found
        time.sleep(0.1)
    raise AssertionError(f"{what}: not within {seconds} s")


class Job:
    """A job over a folder of change files, and what it says."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.version = folder, 0
        (folder / "feed").mkdir()
        self.prom = folder / "weever.prom"
        self.path = folder / "job.yaml"
        quick = {name: SETTINGS[name] for name in ("spark.sql.codegen.factoryMode", "spark.sql.codegen.wholeStage")}
        self.path.write_text(
            json.dumps(
                {
                    "table": "rows",
                    "key": "id",
                    "rules": [
                        {"name": "dependency", "fd": "a -> c", "severity": "critical"},
                        {"name": "kept", "deny": "t.a = s.a and t.c = s.c and t.id < s.id", "severity": "info"},
                    ],
                    "source": {"kind": "files", "path": str(folder / "feed"), "format": "parquet"},
                    "sinks": [{"kind": "files", "path": str(folder / "out")}],
                    "metrics": {"file": str(self.prom)},
                    "spark": quick,
                    "state": {"checkpoint": str(folder / "checkpoint"), "shards": 2},
                }
            )
        )
        self.errors: list[str] = []

    def add(self, *rows: tuple[Any, int, str]) -> None:
        lines = [
            {"id": key, "a": a, "c": f"{CANARY}{c}", "_change_type": "insert", "_commit_version": self.version}
            for key, a, c in rows
        ]
        self.add_file(lambda path: pq.write_table(pa.Table.from_pylist(lines), path))

    def add_file(self, write: Callable[[Path], object]) -> None:
        file = self.folder / f"{self.version}.parquet"
        write(file)
        file.rename(self.folder / "feed" / file.name)
        self.version += 1

    @contextmanager
    def running(self) -> Iterator[subprocess.Popen[str]]:
        short_lived = SETTINGS["spark.driver.extraJavaOptions"]
        process = subprocess.Popen(
            [sys.executable, "-m", "weever_stream.cli", "run", str(self.path), "--every", "300 ms", "-q"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            env={
                **os.environ,
                "PYTHONPATH": ROOT,
                "JDK_JAVA_OPTIONS": short_lived,
                "WEEVER_LOG_JSON": "1",
                "WEEVER_RUN_METRICS_PORT": "0",
            },
        )
        assert process.stderr is not None
        reading = threading.Thread(target=lambda: self.errors.extend(process.stderr))  # type: ignore[arg-type]
        reading.start()
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
            reading.join(30)
            process.stderr.close()

    def events(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in list(self.errors) if line.strip() and not line.startswith(LAUNCHER)]

    def url(self) -> str | None:
        for line in self.events():
            if line["event"] == "notice" and line["message"].startswith("metrics at "):
                return str(line["message"].removeprefix("metrics at "))
        return None


@pytest.mark.slow
def test_a_job_is_watched_from_its_start_to_its_failure(tmp_path: Path):
    job = Job(tmp_path)
    job.add((1, 10, "x"), (2, 10, "y"), (3, 10, "y"), (None, 5, "no key"))
    with job.running() as process:
        url = within(60, job.url, "where metrics are served")
        first = samples(fetch(url))
        assert value(first, "weever_violations_open", **RULE) == 0, "before Spark runs"
        assert value(first, "weever_last_batch_timestamp_seconds") is None

        def scraped(when: Callable[[Samples], object]) -> Callable[[], Samples | None]:
            def look() -> Samples | None:
                assert process.poll() is None, job.errors
                found = samples(fetch(url))
                return found if when(found) else None

            return look

        found = within(180, scraped(lambda it: value(it, "weever_batch_duration_seconds_count")), "a batch")
        assert value(found, "weever_violations_open", **RULE) == 2
        assert value(found, "weever_violations_opened_total", **RULE) == 2
        assert value(found, "weever_violations_opened_total", rule="kept", severity="info") == 1
        assert value(found, "weever_violations_closed_total", **RULE) == 0
        assert value(found, "weever_changes_total", op="put") == 3
        assert value(found, "weever_rejected_records_total") == 1
        assert (value(found, "weever_state_rows") or 0) >= 3
        assert (value(found, "weever_state_bytes", place="state") or 0) > 0
        done = value(found, "weever_last_batch_timestamp_seconds") or 0.0
        idle = within(
            60, scraped(lambda it: (value(it, "weever_last_success_timestamp_seconds") or 0) > done + 1), "idle"
        )
        assert value(idle, "weever_last_batch_timestamp_seconds") == done, "no batch was needed for that"

        # A file that cannot be read: the job fails, and Spark has its say.
        job.add_file(lambda path: path.write_text(f"{CANARY} is no Parquet\n" * 100))
        assert process.wait(180) == 3
        assert value(samples(job.prom.read_text()), "weever_violations_open", **RULE) == 2

    events = job.events()
    ours = [line for line in events if line["event"] != "spark"]
    assert [line["event"] for line in ours if line["event"] != "notice"] == [
        "job_started", "query_started", "batch_done", "records_rejected", "job_stopped", "failed",
    ]  # fmt: skip
    watching = f"watching the folder {tmp_path / 'feed'}"
    assert [line["message"] for line in ours if line.get("message", "").startswith("watching")] == [watching]
    assert {len(line["run_id"]) for line in ours} == {36}
    batch = next(line for line in ours if line["event"] == "batch_done")
    assert (batch["batch_id"], batch["added"], batch["open"], batch["rejected"]) == (0, 3, 3, 1)
    assert batch["query_id"] == json.loads((tmp_path / "checkpoint" / "metadata").read_text())["id"]
    assert ours[-1]["exit_code"] == 3
    assert len(ours) < len(events), "Spark says something of a task that failed, in JSON too"
    for line in events:
        assert {"timestamp", "level", "logger", "event"} <= set(line)
    told = "".join(job.errors) + job.prom.read_text() + "".join(map(str, found))
    assert CANARY not in told
