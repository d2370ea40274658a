"""A job for the tests: any source, rules over one small table, and a sink in memory that knows what is open."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.oracle import written_file
from tests.stream.truth import Violation, self_joins
from weever_stream.job.job import Job, job_of
from weever_stream.rules import read_rules_text
from weever_stream.sinks.batch import Batch
from weever_stream.stream.run import allow, start

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

__all__ = ["COLUMNS", "RULES", "Kept", "Stream", "job_text", "truth"]

COLUMNS = {"id": "bigint", "a": "bigint", "b": "bigint", "n": "bigint", "f": "double", "c": "string"}
RULES = {
    "dependency": {"fd": "a -> c"},
    "crossed": {"deny": "t.a = s.b and t.b = s.a and t.c != s.c"},
    "no_equality": {"deny": "t.n < s.n and t.f > s.f"},
    "one_row": {"deny": "t.n > t.a"},
    "spread_out": {"deny": "t.c = s.c and t.n < s.n and t.b > s.b", "spread": 2},
}
"""A shard for each row, two of them, a grid without a key, rows alone, a grid with one."""


def job_text(
    source: Mapping[str, Any],
    folder: Path | str,
    rules: Mapping[str, Mapping[str, Any]] = RULES,
    *,
    columns: Mapping[str, str] = COLUMNS,
    sinks: Sequence[Mapping[str, Any]] = (),
    spark: Mapping[str, Any] = {},
    **state: Any,
) -> str:
    """A job file; JSON is YAML."""
    return json.dumps(
        {
            "table": "rows",
            "key": "id",
            "columns": columns,
            "rules": [{"name": name, **rule} for name, rule in rules.items()],
            "source": source,
            "sinks": list(sinks),
            "spark": spark,
            "state": {"checkpoint": f"{folder}/checkpoint", "shards": 4, **state},
        },
        indent=1,
    )


class Kept:
    """A sink in memory. Holds every batch to its word: a pair is told once, and is open or not.

    A batch must come in the query's own session, not the `shared` one: sinks change settings of it for a while.
    """

    def __init__(self, shared: SparkSession | None = None) -> None:
        self._shared, self.last = shared, -1
        self.open: set[Violation] = set()
        self.counts: list[Counter[str]] = []
        """Open violations of every rule, after each batch."""
        self.told: dict[int, Counter[tuple[str, str]]] = {}
        """How many violations of each rule a batch added and removed."""

    def write(self, batch: Batch) -> None:
        assert batch.id in (self.last, self.last + 1), "batches come in their order"
        session = batch.deltas.sparkSession
        assert self._shared is None or session._jsparkSession != self._shared._jsparkSession
        if batch.id == self.last:
            return
        rows = batch.deltas.collect()
        ids = [row.violation_id for row in rows]
        assert len(set(ids)) == len(ids), "a batch tells a violation once"
        assert Counter(row.change for row in rows) == +Counter(added=batch.added, removed=batch.removed)
        for row in rows:
            violation = (row.rule, row.left_key, row.right_key)
            assert (violation in self.open) is (row.change == "removed"), violation
            self.open ^= {violation}
        assert +Counter(batch.open) == Counter(rule for rule, _, _ in self.open), "shards know how many are open"
        self.told[batch.id] = Counter((row.change, row.rule) for row in rows)
        self.last = batch.id
        self.counts.append(Counter(rule for rule, _, _ in self.open))


class Stream:
    """A job that is started as often as one likes; its sink and its reports outlive each start."""

    def __init__(self, spark: SparkSession, text: str) -> None:
        self.spark = spark
        job = job_of(read_rules_text(text))
        self.job: Job = job if job.file.sinks else replace(job, sinks=())
        self.rules = written_file(text)
        self.approve: Callable[[Any], None] | None = None
        self.kept = Kept(spark)
        self.reports: list[Any] = []

    def revised(self, text: str) -> None:
        """Another job file for the same checkpoint; its changes of rules are approved of."""
        job = job_of(read_rules_text(text))
        self.job, self.approve = job if job.file.sinks else replace(job, sinks=()), allow
        self.rules = written_file(text)

    def start(self, *, once: bool = True) -> StreamingQuery:
        told = start(self.spark, self.job, self._reported, once=once, also=[self.kept], approve=self.approve)
        return told.query

    def _reported(self, report: Any) -> None:
        """Keeps a report that counts of each rule what the sinks were given."""
        counted = [("added", report.added_by_rule), ("removed", report.removed_by_rule)]
        told = Counter({(change, rule): n for change, counts in counted for rule, n in counts.items()})
        assert told == self.kept.told[report.batch], report
        self.reports.append(report)

    def run(self) -> None:
        """All that is there now."""
        query = self.start()
        query.awaitTermination(300)
        assert not query.isActive
        assert query.exception() is None, str(query.exception())[-3000:]

    def fail(self) -> Any:
        """Runs a job that must fail; its exception."""
        query = self.start()
        with_exception = None
        try:
            query.awaitTermination(300)
        except Exception as error:
            with_exception = error
        assert with_exception is not None, "the job has not failed"
        return query.exception()


def truth(
    spark: SparkSession,
    rows: Iterable[Mapping[str, Any]],
    rules: Sequence[Any],
    columns: Mapping[str, str] = COLUMNS,
) -> set[Violation]:
    """What Spark's own self-joins find in a table."""
    listed = [tuple(row[name] for name in columns) for row in rows]
    ddl = ", ".join(f"{name} {kind}" for name, kind in columns.items())
    return self_joins(spark, spark.createDataFrame(listed, ddl), rules, ["id"])
