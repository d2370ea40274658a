"""The stream on Spark: against a join with the whole table, at ten times the rows, loading a snapshot, one row a batch.

    python -m benchmarks.stream                    all parts at full size (some 40 minutes on two cores)
    python -m benchmarks.stream against growth     some of them; --rows 100000 for a smaller table

Every measurement is a fresh process with a Spark session of its own. CPU is that of the whole tree of processes
(Python, the JVM, Python workers), start of the session aside; wall times are told beside it, because a trigger is
waited for, and judged only as a ratio within this run. Changes come as Parquet files of a folder, one file a batch;
what a batch finds is written out in full to Spark's `noop` sink, on both sides.
"""

from __future__ import annotations

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

from benchmarks import workloads
from benchmarks.children import call, say
from benchmarks.results import Line, save, show
from benchmarks.workloads import RULES

__all__ = ["against_lines", "main", "middle", "share", "snapshot_lines", "started", "stream_growth_lines"]

_BATCH = 10_000
_WARM = 12
"""Batches that are not counted: the JVM compiles, files are read for the first time."""
_MASTER = "local[2,4]"
_FOUR = ("phi7", "phi8", "phi9", "phi10")
_TARGETS = {"against": 10.0, "growth": 1.3, "snapshot": 25.0}


def cpu() -> float:
    """CPU seconds of this process and all below it, also of those that have ended."""
    me = psutil.Process()
    total = 0.0
    for process in (me, *me.children(recursive=True)):
        try:
            total += sum(process.cpu_times()[:4])
        except psutil.NoSuchProcess:
            continue
    return total


class Folder:
    """Change files of one table: its first rows, then batches of the following ones."""

    def __init__(self, root: Path, table: pa.Table) -> None:
        self.root, self.table, self.at = root, table, 0
        root.mkdir(parents=True)

    def add(self, rows: int) -> pa.Table:
        """One file with the next rows, as inserts."""
        some = self.table.slice(self.at, rows)
        changes = some.append_column("_change_type", pa.array(["insert"] * len(some)))
        changes = changes.append_column("_commit_version", pa.array([self.at] * len(some), pa.int64()))
        beside = self.root.parent / "next.parquet"
        pq.write_table(changes, beside)
        beside.rename(self.root / f"{self.at:09d}.parquet")
        self.at += rows
        return some


class _Noop:
    """A sink that has every violation written out, and keeps nothing."""

    def write(self, batch: Any) -> None:
        if batch.added or batch.removed:
            batch.deltas.write.format("noop").mode("overwrite").save()


def _rules(names: Iterable[str]) -> str:
    return "".join(f"  - {{name: {name}, deny: '{RULES[name].deny}'}}\n" for name in names)


def _job(root: Path, names: Iterable[str], source: str, shards: int) -> Any:
    from weever_stream.job.job import job_of
    from weever_stream.rules import read_rules_text

    text = (
        f"table: rows\nkey: id\nrules:\n{_rules(names)}source: {source}\n"
        f"sinks: [{{kind: files, path: '{root}/unused'}}]\n"
        # All pairs are listed, as the join lists them.
        f"state: {{checkpoint: '{root}/checkpoint', shards: {shards}, max_pairs: 0}}\n"
    )
    return job_of(read_rules_text(text))


def started(kinds: Iterable[str], settings: Mapping[str, str] | None = None) -> Any:
    """A session, and kernels that are compiled before anything is measured."""
    import weever_stream.detect.shard  # noqa: F401 - the kernels are compiled before anything is measured
    from weever_stream.stream.session import session

    return session(kinds, master=_MASTER, conf={"spark.driver.memory": "4g", **(settings or {})})


def _query(spark: Any, job: Any, reports: list[Any], every: str = "0 ms") -> Any:
    from weever_stream.stream import query
    from weever_stream.stream.run import start

    # Only what the engine finds is to be measured: no sink of ours, the deltas are written out to nowhere.
    before = query.open_sinks
    query.open_sinks = lambda *_, **__: []  # type: ignore[assignment]
    try:
        return start(spark, job, reports.append, every=every, also=[_Noop()]).query
    finally:
        query.open_sinks = before


def _until(reports: list[Any], seen: int, query: Any) -> None:
    while len(reports) <= seen:
        if not query.isActive:
            raise RuntimeError(f"the query ended: {query.exception()}")
        time.sleep(0.01)


def ours(
    rules: list[str],
    rows: int,
    batches: int,
    size: int = _BATCH,
    shards: int = 4,
    settings: dict[str, str] | None = None,
) -> dict[str, Any]:
    """In a child: `rows` rows in state, then batches; of each its CPU, its time, and that inside the shards."""
    root = Path(tempfile.mkdtemp(prefix="weever-stream-"))
    try:
        needed = ["id", *dict.fromkeys(column for rule in rules for column in RULES[rule].columns)]
        spark = started([], settings)
        whole = rows + (batches + _WARM) * size
        folder = Folder(root / "changes", workloads.table(RULES[rules[0]].table, whole, needed))
        folder.add(rows)
        source = f"{{kind: files, path: '{folder.root}', format: parquet, remember_drops: 0}}"
        reports: list[Any] = []
        query = _query(spark, _job(root, rules, source, shards), reports)
        _until(reports, 0, query)
        records = []
        for number in range(batches + _WARM):
            began, wall = cpu(), time.perf_counter()
            folder.add(size)
            _until(reports, number + 1, query)
            took = time.perf_counter() - wall
            report = reports[number + 1]
            records.append({"cpu": cpu() - began, "wall": took, "shards": report.shard_seconds, "pairs": report.added})
        query.stop()
        return {"batches": records[_WARM:], "pairs": sum(report.added for report in reports)}
    finally:
        shutil.rmtree(root, ignore_errors=True)


def join(rule: str, rows: int, batches: int) -> dict[str, Any]:
    """In a child: what a Spark user writes today, `foreachBatch` with a join of the batch and the whole Delta table."""
    from pyspark.sql import functions as F

    root = Path(tempfile.mkdtemp(prefix="weever-join-"))
    try:
        work, spark = RULES[rule], started(["delta"])
        folder = Folder(
            root / "changes", workloads.table(work.table, rows + (batches + _WARM) * _BATCH, ["id", *work.columns])
        )
        held = str(root / "table")
        folder.add(rows)
        spark.read.parquet(str(folder.root)).drop("_change_type", "_commit_version").write.format("delta").save(held)
        first = next(folder.root.iterdir())
        schema = spark.read.parquet(str(first)).schema
        first.unlink()
        done: list[int] = []

        def follow(batch: Any, _: int) -> None:
            new = batch.drop("_change_type", "_commit_version").persist()
            old = spark.read.format("delta").load(held)
            version = spark.sql(f"DESCRIBE HISTORY delta.`{held}` LIMIT 1").collect()[0].version
            old = spark.read.format("delta").option("versionAsOf", version).load(held)
            on = " and ".join(f"t.{left} {op} s.{right}" for left, op, right in work.predicates)
            pairs = new.alias("t").join(old.alias("s"), F.expr(on))
            within = F.expr(f"t.id {'<' if work.symmetric else '<>'} s.id and {on}")
            pairs = pairs.union(new.alias("t").join(new.alias("s"), within))
            if not work.symmetric:
                pairs = pairs.union(old.alias("t").join(new.alias("s"), F.expr(on)))
            pairs.persist().write.format("noop").mode("overwrite").save()
            done.append(pairs.count())
            new.write.format("delta").mode("append").save(held)
            pairs.unpersist()
            new.unpersist()

        query = (
            spark.readStream.schema(schema).parquet(str(folder.root)).writeStream.foreachBatch(follow)
            .option("checkpointLocation", str(root / "checkpoint")).start()
        )  # fmt: skip
        records = []
        for number in range(batches + _WARM):
            began, wall = cpu(), time.perf_counter()
            folder.add(_BATCH)
            _until(done, number, query)
            records.append({"cpu": cpu() - began, "wall": time.perf_counter() - wall, "pairs": done[number]})
        query.stop()
        return {"batches": records[_WARM:]}
    finally:
        shutil.rmtree(root, ignore_errors=True)


def snapshot(rows: int, shards: int = 4, written: bool = True) -> dict[str, Any]:
    """In a child: the first batch over a Delta table, four rules; CPU beyond the start of the session."""
    from deltalake import write_deltalake

    root = Path(tempfile.mkdtemp(prefix="weever-snapshot-"))
    try:
        needed = ["id", *dict.fromkeys(column for rule in _FOUR for column in RULES[rule].columns)]
        table = workloads.table("tax", rows, needed)
        write_deltalake(str(root / "table"), table, configuration={"delta.enableChangeDataFeed": "true"})
        spark = started(["delta"])
        spark.range(1).count()
        reports: list[Any] = []
        before, wall = _by_kind(), time.perf_counter()
        job = _job(root, _FOUR, f"{{kind: delta, path: '{root}/table'}}", shards)
        if not written:
            _Noop.write = lambda self, batch: None  # type: ignore[method-assign]
        query = _query(spark, job, reports)
        _until(reports, 0, query)
        took, after = time.perf_counter() - wall, _by_kind()
        query.stop()
        spent = {kind: after[kind] - before.get(kind, 0.0) for kind in after}
        return {
            "cpu": sum(spent.values()), "by": spent, "wall": took, "shards": reports[0].shard_seconds,
            "pairs": reports[0].added,
        }  # fmt: skip
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _by_kind() -> dict[str, float]:
    """CPU seconds of the driver, the JVM and the Python workers."""
    me = psutil.Process()
    spent = {"driver": sum(me.cpu_times()[:2]), "jvm": 0.0, "workers": 0.0}
    for process in me.children(recursive=True):
        try:
            java = "java" in process.name()
            spent["jvm" if java else "workers"] += sum(process.cpu_times()[: 2 if java else 4])
        except psutil.NoSuchProcess:
            continue
    return spent


def middle(records: Iterable[Mapping[str, float]], name: str) -> float:
    """The median of one figure."""
    return statistics.median(record[name] for record in records)


def _against(rows: int) -> list[Line]:
    records = []
    for rule in ("phi8", "phi10"):
        say(f"{rule}: {rows:,} rows in state, batches of {_BATCH:,}")
        mine = call("stream.ours", rules=[rule], rows=rows, batches=8)
        other = call("stream.join", rule=rule, rows=rows, batches=8)
        pairs = [[one["pairs"] for one in side["batches"]] for side in (mine, other)]
        if pairs[0] != pairs[1]:
            raise RuntimeError(f"{rule}: the stream found {pairs[0]} pairs and the join {pairs[1]}")
        records.append({"rule": rule, "rows": rows, "ours": mine["batches"], "join": other["batches"]})
    save("stream-against", records)
    return against_lines(records)


def against_lines(records: list[dict[str, Any]]) -> list[Line]:
    """CPU of a batch: the join with the whole table against the stream."""
    lines = []
    for one in records:
        ratio = middle(one["join"], "cpu") / middle(one["ours"], "cpu")
        name = f"{one['rule']}: join / stream, CPU a batch"
        lines.append(Line(name, "times", _TARGETS["against"], ratio, at_most=False))
    return lines


def share(batches: Iterable[Mapping[str, float]]) -> float:
    """Time inside the shards, of two that work at once, against the time of the trigger."""
    return statistics.median(one["shards"] / 2 / one["wall"] for one in batches)


def _growth(rows: int) -> list[Line]:
    records = []
    for size in (rows // 2, 5 * rows):
        say(f"phi8: {size:,} rows in state")
        records.append({"rows": size} | call("stream.ours", rules=["phi8"], rows=size, batches=15))
    save("stream-growth", records)
    return stream_growth_lines(records)


def stream_growth_lines(records: list[dict[str, Any]]) -> list[Line]:
    """The time of a batch at ten times the rows."""
    few, many = (one["batches"] for one in records)
    ratio = middle(many, "wall") / middle(few, "wall")
    return [Line("phi8: time of a batch at ten times the rows", "times", _TARGETS["growth"], ratio)]


def _snapshot(rows: int) -> list[Line]:
    records = []
    for size, written in ((rows, True), (rows, False), (rows // 100, True)):
        say(f"the snapshot of {size:,} rows under four rules, pairs {'written out' if written else 'kept packed'}")
        about = {"rows": size, "written": written}
        records.append(about | call("stream.snapshot", rows=size, written=written))
    save("stream-snapshot", records)
    return snapshot_lines(records)


def snapshot_lines(records: list[dict[str, Any]]) -> list[Line]:
    """CPU of the first batch, all of it, and beyond what a hundredth of the rows takes."""
    whole, _, start = records
    return [
        Line("snapshot under four rules, pairs written out", "CPU s", _TARGETS["snapshot"], whole["cpu"]),
        Line("the same, less what 1% of the rows takes", "CPU s", None, whole["cpu"] - start["cpu"]),
    ]


_SETTINGS: dict[str, dict[str, str]] = {
    "as weever sets them": {},
    "one shuffle partition": {"spark.sql.shuffle.partitions": "1"},
    "eight shuffle partitions": {"spark.sql.shuffle.partitions": "8"},
    "adaptive plans on": {"spark.sql.adaptive.enabled": "true"},
    "state in the heap (HDFS provider)": {
        "spark.sql.streaming.stateStore.providerClass": (
            "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
        )
    },
    "new Python workers for every task": {"spark.python.worker.reuse": "false"},
}


def _fixed(rows: int) -> list[Line]:
    records = []
    for name, settings in _SETTINGS.items():
        say(f"one row a batch: {name}")
        found = call("stream.ours", rules=["phi8"], rows=10_000, batches=12, size=1, settings=settings)
        records.append({"settings": name, "batches": found["batches"]})
    save("stream-fixed", records)
    return [
        Line(f"one row a batch, {one['settings']}", "CPU s", None, middle(one["batches"], "cpu")) for one in records
    ]


PARTS: dict[str, Callable[[int], list[Line]]] = {
    "against": _against,
    "growth": _growth,
    "snapshot": _snapshot,
    "fixed": _fixed,
}


def main() -> None:
    """The command."""
    options = ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("parts", nargs="*", choices=[*PARTS, []], default=[], help="all of them if none is named")
    options.add_argument("--rows", type=int, default=1_000_000)
    asked = options.parse_args()
    lines: list[Line] = []
    for part in asked.parts or PARTS:
        lines += PARTS[part](asked.rows)
    show("the stream", lines)


if __name__ == "__main__":
    main()
