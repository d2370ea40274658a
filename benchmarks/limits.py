"""What a job holds: rows a second under so many rules and rows in state, and whether an hour leaves anything behind.

    python -m benchmarks.limits load               rows a second, with 1, 4 and 20 rules over a million rows
    python -m benchmarks.limits size               bytes of state and CPU for each row, without Spark
    python -m benchmarks.limits soak               an hour at constant live rows; --minutes 10 for less

The soak changes rows that stay as many as they are, a file of changes every few seconds, and looks at the processes and
at the checkpoint all along: memory, descriptors, threads, files and bytes. What a job leaves behind shows as growth
from the second quarter of the time to the last; the first is for the JVM to settle. What it finds goes to files, which
grow by their nature and are not looked at.
"""

from __future__ import annotations

import random
import shutil
import statistics
import tempfile
import time
from argparse import ArgumentParser
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.children import call, peak_memory, say
from benchmarks.results import Line, save, show
from benchmarks.stream import middle, started
from benchmarks.workloads import RULES, table

__all__ = ["FLAT", "MEASURES", "load_lines", "main", "quarters", "size_lines", "soak_lines"]

_BATCH = 100_000
_RULES = {"one rule": ["phi8"], "four rules": ["phi7", "phi8", "phi9", "phi10"]}
_SOAKED = {
    # A heap that is full soon: one that may grow to 4 GB would take an hour to show whether it stops growing.
    "spark.driver.memory": "1g",
    "spark.sql.streaming.minBatchesToRetain": "20",
}
FLAT = 1.1
"""How much the last quarter of a soak may be above the second."""
MEASURES = ("rss_mb", "descriptors", "threads", "run_files", "run_mb", "state_files", "state_mb")


def _load(asked: Any) -> list[Line]:
    records = []
    for name, rules in _RULES.items():
        say(f"{name}: {asked.rows:,} rows in state, batches of {_BATCH:,}")
        found = call("stream.ours", rules=rules, rows=asked.rows, batches=6, size=_BATCH)
        records.append({"rules": name, "rows": asked.rows, "size": _BATCH, "batches": found["batches"]})
    save("limits-load", records)
    return load_lines(records)


def load_lines(records: list[dict[str, Any]]) -> list[Line]:
    """Rows a second that a job keeps up with."""
    return [
        Line(
            f"{one['rules']}: changes held", "rows/s", None, one["size"] / middle(one["batches"], "wall"), at_most=False
        )
        for one in records
    ]


def _sizes(asked: Any) -> list[Line]:
    records = []
    for name, rules in _RULES.items():
        say(f"{name}: {asked.rows:,} rows")
        records.append({"rules": name, "rows": asked.rows} | call("limits.held", rules=rules, rows=asked.rows))
    save("limits-size", records)
    return size_lines(records)


def held(rules: list[str], rows: int) -> dict[str, Any]:
    """In a child: what so many rows take, in memory and written down, and the CPU to take them in."""
    from weever_stream.detect.detector import Detector
    from weever_stream.rules import parse_rule

    given = table("tax", rows)
    detector = Detector([parse_rule(RULES[name].deny, name=name) for name in rules], key="id", schema=given.schema)
    before, began = peak_memory(), time.process_time()
    pairs = sum(len(detector.insert(given.slice(at, _BATCH))) for at in range(0, rows, _BATCH))
    cpu = time.process_time() - began
    with tempfile.TemporaryDirectory() as folder:
        detector.dump(Path(folder) / "state")
        size = (Path(folder) / "state").stat().st_size
    return {"pairs": pairs, "cpu": cpu, "bytes": size, "grown_mb": peak_memory() - before}


def size_lines(records: list[dict[str, Any]]) -> list[Line]:
    """Bytes of state for a row."""
    return [
        Line(f"{one['rules']}: state", "bytes a row", None, one["bytes"] / one["rows"], at_most=False)
        for one in records
    ]


class _Feed:
    """Files of changes to rows that stay as many as they are."""

    def __init__(self, root: Path, live: int, changes: int) -> None:
        self.root, self.live, self.changes, self.version = root, live, changes, 0
        self.random = random.Random(1)
        root.mkdir(parents=True)

    def add(self, keys: Iterable[int]) -> None:
        """One version: these rows with new values, a tenth of them deleted before."""
        self.version += 1
        ids = list(keys)
        draw = self.random.randrange
        rows = {
            "id": ids,
            "zip": [draw(self.live // 10) for _ in ids],
            "city": [draw(3) for _ in ids],
            "salary": [draw(10_000) for _ in ids],
            "rate": [draw(10_000) for _ in ids],
        }
        table = pa.table(rows).append_column("_change_type", pa.array(["upsert"] * len(ids)))
        table = table.append_column("_commit_version", pa.array([self.version] * len(ids), pa.int64()))
        pq.write_table(table, self.root.parent / "next.parquet")
        (self.root.parent / "next.parquet").rename(self.root / f"{self.version:09d}.parquet")

    def step(self) -> None:
        """Some rows change."""
        self.add(self.random.sample(range(self.live), self.changes))


def soak(minutes: float, live: int, changes: int, every: float) -> dict[str, Any]:
    """In a child: the real job for so long; what it holds, sampled all along."""
    from weever_stream.job.job import job_of
    from weever_stream.rules import read_rules_text
    from weever_stream.stream.run import start

    root = Path(tempfile.mkdtemp(prefix="weever-soak-"))
    try:
        feed = _Feed(root / "changes", live, changes)
        feed.add(range(live))
        text = (
            "table: rows\nkey: id\nrules:\n  - {name: city, fd: zip -> city}\n"
            "  - {name: rate, deny: t.zip = s.zip and t.salary > s.salary and t.rate < s.rate}\n"
            f"source: {{kind: files, path: '{feed.root}', format: parquet}}\n"
            f"sinks: [{{kind: files, path: '{root}/found'}}]\n"
            f"state: {{checkpoint: '{root}/checkpoint', shards: 4, inline_bytes: 65536, retain_batches: 20}}\n"
        )
        spark, reports = started([], _SOAKED), []
        query = start(spark, job_of(read_rules_text(text)), reports.append, every="0 ms").query
        samples, end, next_look = [], time.monotonic() + 60 * minutes, 0.0
        while time.monotonic() < end:
            feed.step()
            time.sleep(every)
            if not query.isActive:
                raise RuntimeError(f"the query ended: {query.exception()}")
            if time.monotonic() >= next_look:
                samples.append(_look(root / "checkpoint") | {"batch": len(reports)})
                next_look = time.monotonic() + 10
        query.stop()
        return {
            "samples": samples,
            "batches": len(reports),
            "open": sum(reports[-1].open.values()),
            "sent": feed.version,
        }
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _look(checkpoint: Path) -> dict[str, float]:
    """The processes, and the checkpoint."""
    me = psutil.Process()
    found = {"rss_mb": 0.0, "descriptors": 0, "threads": 0}
    for process in (me, *me.children(recursive=True)):
        try:
            found["rss_mb"] += process.memory_info().rss / (1 << 20)
            found["descriptors"] += process.num_fds()
            found["threads"] += process.num_threads()
        except psutil.NoSuchProcess:
            continue
    for name, folder in (("run", checkpoint / "weever" / "runs"), ("state", checkpoint / "state")):
        sizes = [size for path in folder.rglob("*") for size in _size(path)]
        found |= {f"{name}_files": len(sizes), f"{name}_mb": sum(sizes) / (1 << 20)}
    return found


def _size(path: Path) -> list[int]:
    try:
        return [path.stat().st_size] if path.is_file() else []
    except FileNotFoundError:  # deleted while we look, as it should be
        return []


def _soak(asked: Any) -> list[Line]:
    say(f"{asked.minutes:g} minutes at {asked.live:,} live rows, {asked.changes:,} changes every {asked.every:g} s")
    about = {"minutes": asked.minutes, "live": asked.live, "changes": asked.changes, "every": asked.every}
    records = [about | call("limits.soak", **about)]
    save("limits-soak", records)
    return soak_lines(records)


def soak_lines(records: list[dict[str, Any]]) -> list[Line]:
    """The last quarter of the time against the second."""
    (one,) = records
    return [
        Line(f"soak: {name}, last quarter / second", "times", FLAT, grown(one["samples"], name)) for name in MEASURES
    ]


def quarters(samples: list[Mapping[str, float]], name: str) -> list[float]:
    """The median of a measure in each quarter of the time."""
    size = max(len(samples) // 4, 1)
    return [statistics.median(sample[name] for sample in samples[at * size : (at + 1) * size]) for at in range(4)]


def grown(samples: list[Mapping[str, float]], name: str) -> float:
    """How many times its second quarter a measure is in its last."""
    _, second, _, last = quarters(samples, name)
    return last / second if second else 1.0


PARTS: dict[str, Callable[[Any], list[Line]]] = {"load": _load, "size": _sizes, "soak": _soak}


def main() -> None:
    """The command."""
    options = ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[], help="all if none is named")
    options.add_argument("--rows", type=int, default=1_000_000, help="load, size: rows in state")
    options.add_argument("--minutes", type=float, default=60.0, help="soak: for how long")
    options.add_argument("--live", type=int, default=20_000, help="soak: rows in state")
    options.add_argument("--changes", type=int, default=500, help="soak: changes in a file")
    options.add_argument("--every", type=float, default=10.0, help="soak: seconds between files")
    asked = options.parse_args()
    lines: list[Line] = []
    for part in asked.parts or PARTS:
        lines += PARTS[part](asked)
    show("limits", lines)


if __name__ == "__main__":
    main()
