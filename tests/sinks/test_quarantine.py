"""The quarantine: which rows are in it, and a table split by that, after every batch, held to self-joins.

Catches: a row that is set free while it is still in another violation, one that stays although all are over, violations
of too low a severity, a rule whose severity changes, batches that are written twice or half, keys that are not found
again by their text, a table of somebody else that is overwritten.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.errors import StreamingQueryException

from tests.oracle import written_file
from tests.sinks.batches import NASTY, Pair, Story
from tests.stream.truth import self_joins
from weever_stream.detect.texts import keys_of
from weever_stream.errors import DataError, OutputError, RuleError
from weever_stream.job.job import job_of, read_job
from weever_stream.job.options import QuarantineSink
from weever_stream.rules import read_rules_text
from weever_stream.sinks import Sink, open_sinks
from weever_stream.sinks.split import Split
from weever_stream.sinks.tables import QUARANTINE
from weever_stream.stream.failures import schema_changed
from weever_stream.stream.run import start

JOB = """
table: rows
key: [id, part]
source: {{kind: {source}}}
rules:
  - {{name: dependency, fd: a -> c}}
  - {{name: crossed, deny: t.a = s.b and t.b = s.a and t.c != s.c, severity: critical}}
  - {{name: one_row, deny: t.n > t.a}}
  - {{name: minor, deny: t.n < s.n and t.b > s.b, severity: warning}}
sinks:
  - {{kind: quarantine, path: "{out}", tables: split}}
state: {{checkpoint: "{out}/checkpoint", shards: 2}}
"""


def job(source: Any, out: Path) -> Any:
    return job_of(read_rules_text(JOB.format(source=source, out=out), path="job.yaml"))


def test_only_a_delta_source_can_be_split(tmp_path: Path) -> None:
    with pytest.raises(RuleError) as caught:
        job("kafka, servers: 'b:1', topic: x", tmp_path)
    shown = caught.value.render()
    assert "job.yaml:11:" in shown
    assert "a kafka source cannot be split" in shown
    assert "hint: leave `tables` out" in shown
    assert job("delta, path: /lake/x", tmp_path).connectors == {"delta"}


def test_the_job_on_the_page_is_valid() -> None:
    page = (Path(__file__).parents[2] / "docs" / "quarantine.md").read_text("utf-8")
    [text] = re.findall(r"^```yaml\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    assert job_of(read_rules_text(text)).sinks[0].kind == "quarantine"
    assert tuple(re.findall(r"^\| `(\w+)` \| (?:string|timestamp|bigint) \|", page, re.MULTILINE)) == QUARANTINE.columns


def test_a_contract_is_no_job(tmp_path: Path) -> None:
    path = tmp_path / "contract.yaml"
    path.write_text("apiVersion: v3.1.0\nkind: DataContract\nschema: [{name: x}]")
    with pytest.raises(RuleError, match="a data contract is no job"):
        read_job(path, {})


def quarantine(spark: Any, path: Path, **options: Any) -> Sink:
    take_over = options.pop("take_over", False)
    [sink] = open_sinks(spark, [QuarantineSink(kind="quarantine", path=str(path), **options)], take_over=take_over)
    return sink


def expected(story: Story, severities: tuple[str, ...] = ("error", "critical")) -> Counter[tuple[str, str]]:
    """Key and violation, for each row of each open violation of these severities."""
    pairs = [pair for pair in story.open.values() if pair.severity in severities]
    return Counter((key, pair.id) for pair in pairs for key in (pair.left, pair.right) if key is not None)


def held(spark: Any, path: Path) -> Counter[tuple[str, str]]:
    rows = spark.read.format("delta").load(f"{path}/keys").collect()
    for row in rows:
        assert row.other_key != row.key
    return Counter((row.key, row.violation_id) for row in rows)


A, B, C, D = Pair("r", "1", "2"), Pair("r", "1", "3"), Pair("one", "1"), Pair("low", "2", "3", severity="warning")


def test_a_row_is_free_when_its_last_violation_is_over(spark: Any, tmp_path: Path) -> None:
    story, sink = Story(spark), quarantine(spark, tmp_path)
    raised, eased = replace(D, severity="error"), Pair("eased", "2", "9")
    steps: list[tuple[list[Pair], list[Pair]]] = [
        ([A, B, C, D, eased], []),
        ([Pair("r", NASTY, f"{NASTY}!", severity="critical")], [A]),
        # What a rule's severity is by now does not matter: what came in must go, and what never came cannot.
        ([], [C, raised, replace(eased, severity="warning")]),
        ([A], [B]),
    ]
    for number, (added, removed) in enumerate(steps):
        batch = story.batch(number, added, removed)
        sink.write(batch)
        assert held(spark, tmp_path) == expected(story)
        if number == 2:
            sink = quarantine(spark, tmp_path)  # a restart that has to do the batch again
            sink.write(batch)
            assert held(spark, tmp_path) == expected(story)
    assert expected(story), "something is left to be found"
    with pytest.raises(OutputError, match="was begun with the severity error, now `min_severity` is warning"):
        quarantine(spark, tmp_path, min_severity="warning")
    late = story.batch(7, [D])
    with pytest.raises(OutputError, match="begins in the middle"):
        quarantine(spark, tmp_path / "late").write(late)
    before = held(spark, tmp_path)
    middle = Story(spark, query="query-3")
    middle.batch(0, [A])
    with pytest.raises(OutputError, match="begins in the middle"):
        quarantine(spark, tmp_path, take_over=True).write(middle.batch(1, [B]))
    assert held(spark, tmp_path) == before, "a refused take-over deletes nothing"
    other = Story(spark, query="query-2")
    first = other.batch(0, [B, D])
    with pytest.raises(OutputError, match="another run"):
        quarantine(spark, tmp_path).write(first)
    for _ in range(2):
        quarantine(spark, tmp_path, min_severity="warning", take_over=True).write(first)
        assert held(spark, tmp_path) == expected(other, ("warning", "error", "critical"))


class World:
    """A Delta table, a job that splits it, and what the split must be."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.spark, self.table, self.out = spark, folder / "table", folder / "out"
        spark.sql(
            f"CREATE TABLE delta.`{self.table}` (id bigint, part string, a bigint, b bigint, n bigint, c string,"
            " note struct<x: int>) USING delta TBLPROPERTIES ('delta.enableChangeDataFeed'='true')"
        )
        # A commit a batch, so that one start has several.
        self.job = job(f"delta, path: '{self.table}', options: {{maxFilesPerTrigger: 1}}", self.out)
        self.reports: list[Any] = []
        self.sizes: list[tuple[int, int]] = []

    def sql(self, statement: str) -> None:
        self.spark.sql(statement.replace("ROWS", f"delta.`{self.table}`"))

    def run(self, *, each: bool = True) -> None:
        """All that is there now. `each`: holds the tables to the truth after each batch, not only in the end."""

        def observe(report: Any) -> None:
            self.reports.append(report)
            if each:
                self.sizes.append(self.check())

        for _ in range(3):  # a new schema of the source ends the query, and `weever run` starts it again
            running = start(self.spark, self.job, observe, once=True)
            try:
                running.query.awaitTermination(300)
                return
            except StreamingQueryException as error:
                if not schema_changed([str(error)]):
                    raise
        raise AssertionError("the schema changes again and again")

    def read(self, name: str) -> Any:
        return self.spark.read.format("delta").load(f"{self.out}/{name}")

    def check(self) -> tuple[int, int]:
        """Holds the tables to self-joins of the source at the published version; how many rows each has."""
        version = json.loads(self.reports[-1].position)["version"]
        source = self.spark.read.format("delta").option("versionAsOf", version).load(str(self.table))
        source = source.where("part IS NOT NULL")  # the job rejects a row without its key
        names = {rule.name for rule in self.job.file.rules if rule.severity in ("error", "critical")}
        severe = [rule for rule in written_file(JOB.format(source="", out="")) if rule.name in names]
        reasons: dict[str, list[str]] = {}
        for rule, left, right in self_joins(self.spark, source, severe, ["id", "part"]):
            for key in (left, right):
                if key is not None:
                    reasons.setdefault(key, []).append(rule)
        assert Counter(row.key for row in self.read("keys").collect()) == Counter(
            {key: len(rules) for key, rules in reasons.items()}
        )
        rows = {
            json.dumps([row.id, row.part], ensure_ascii=False, separators=(",", ":")): row for row in source.collect()
        }
        clean, apart = self.read("clean").collect(), self.read("quarantined").collect()
        assert sorted(map(str, clean)) == sorted(str(row) for key, row in rows.items() if key not in reasons)
        assert {(str(row[:-1]), row[-1].violations, tuple(row[-1].rules)) for row in apart} == {
            (str(row[:]), len(reasons[key]), tuple(sorted(set(reasons[key]))))
            for key, row in rows.items()
            if key in reasons
        }
        assert len(clean) + len(apart) == len(rows)
        return len(clean), len(apart)


def half_a_batch(world: World) -> None:
    """A start that fails when `clean` has taken a batch and `quarantined` has not."""
    whole = Split._merge

    def cut_off(self: Split, rows: Any, reasons: Any, keys: Any, name: str, path: str, batch: Any) -> None:
        if name == "quarantined":
            raise RuntimeError("cut off")
        whole(self, rows, reasons, keys, name, path, batch)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Split, "_merge", cut_off)
        with pytest.raises(StreamingQueryException, match="cut off"):
            world.run()


def test_a_table_is_split_into_clean_and_quarantined_rows(spark: Any, tmp_path: Path) -> None:
    world = World(spark, tmp_path)
    nasty = NASTY.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    world.sql(
        "INSERT INTO ROWS SELECT id, CASE WHEN id % 3 = 0 THEN '" + nasty + "' ELSE 'p' END, id % 5, id % 4,"
        " CASE WHEN id % 6 = 0 THEN 9 ELSE 0 END, CASE WHEN id % 7 = 0 THEN 'odd' ELSE string(id % 5) END,"
        " named_struct('x', int(id)) FROM range(24)"
    )
    world.sql("INSERT INTO ROWS VALUES (99, null, 1, 1, 1, 'x', null)")
    world.run(each=False)  # the snapshot comes in two batches, and what is between them was never the table
    assert len(world.reports) > 1
    clean, apart = world.check()
    assert clean
    assert apart
    for statement in (
        "UPDATE ROWS SET c = string(a) WHERE id IN (7, 14)",  # partners are set free without a change of their own
        "MERGE INTO ROWS t USING (SELECT * FROM VALUES (1, 'p'), (4, 'p'), (50, 'q') AS v(id, part)) s"
        " ON t.id = s.id AND t.part = s.part WHEN MATCHED THEN UPDATE SET c = CASE t.id WHEN 4 THEN t.c ELSE 'other' END,"
        " note = named_struct('x', -1)"  # of row 4 no rule reads what changes: it must follow all the same
        " WHEN NOT MATCHED THEN INSERT (id, part, a, b, n, c) VALUES (50, 'q', 60, 60, 0, 'new')",
        "DELETE FROM ROWS WHERE id % 4 = 3",
    ):
        world.sql(statement)
    half_a_batch(world)
    world.run()
    assert len(set(world.sizes)) >= 3, "each of the batches moves rows"
    world.sql("ALTER TABLE ROWS ADD COLUMN extra string")
    world.sql("UPDATE ROWS SET n = 0, extra = 'e'")
    world.run()
    split = world.job.sinks[0]
    # For a while the job does not split: violations come and go, and no row of theirs changes when it does again.
    world.job = replace(world.job, sinks=(split.model_copy(update={"tables": "keys"}),))
    world.sql("UPDATE ROWS SET c = 'zz' WHERE id = 2")
    world.run(each=False)
    world.job = replace(world.job, sinks=(split,))
    world.sql("INSERT INTO ROWS VALUES (77, 'p', 70, 70, 0, 'x', null, null)")
    world.run()
    assert world.sizes[-1][1] > 0


KEYS = {
    "i": (pa.int32(), [0, -1, 2**31 - 1]),
    "l": (pa.int64(), [0, -(2**63), 2**63 - 1]),
    "s": (pa.string(), ["", NASTY, "null"]),
    "d": (pa.decimal128(20, 4), [Decimal("0.0001"), Decimal("-12.5"), Decimal(10**15)]),
    "f": (pa.float64(), [1e-300, -0.0, float("nan")]),
    "h": (pa.float32(), [0.1, 3.4e38, float("-inf")]),
    "y": (pa.bool_(), [True, False, True]),
    "day": (pa.date32(), [date(1, 1, 1), date(9999, 12, 31), date(2024, 2, 29)]),
    "at": (pa.timestamp("us", "UTC"), [datetime(2024, 11, 3, h, 30, 0, 5, tzinfo=timezone.utc) for h in (5, 6, 7)]),
    "local": (pa.timestamp("us"), [datetime(2024, 3, 10, 2, 30), datetime(9999, 12, 31), datetime(1900, 1, 1)]),
}


@pytest.mark.parametrize("key", [["s"], ["d"], ["f"], ["at"], ["local"], list(KEYS)], ids=lambda key: "+".join(key))
def test_keys_are_found_again_by_their_text(spark: Any, tmp_path: Path, key: list[str]) -> None:
    """What `keys` holds is text; a join with the source needs the key itself, of every type, NaN and DST included."""
    table = pa.table({name: pa.array(KEYS[name][1], KEYS[name][0]) for name in key})
    parquet.write_table(table, tmp_path / "rows.parquet")
    rows = spark.read.parquet(str(tmp_path / "rows.parquet"))
    split = Split.__new__(Split)
    split._key = tuple(key)
    split._types = {field.name: field.dataType.simpleString() for field in rows.schema}
    texts = spark.createDataFrame([(text,) for text in keys_of(table, key).to_pylist()], "key string")
    typed = split._typed(texts)
    assert rows.join(typed, key, "left_semi").count() == len(table)


def test_tables_of_others_are_not_overwritten(spark: Any, tmp_path: Path) -> None:
    world = World(spark, tmp_path)
    spark.range(3).write.format("delta").save(str(world.out / "clean"))
    with pytest.raises(OutputError, match="clean holds a Delta table that is not ours"):
        open_sinks(spark, world.job.sinks, job=world.job)
    other = read_rules_text(
        JOB.format(source=f"delta, path: '{world.table}'", out=tmp_path / "o").replace(
            "rules:", "columns: {id: string}\nrules:"
        )
    )
    with pytest.raises(DataError, match="the key id is read as another type"):
        open_sinks(spark, job_of(other).sinks, job=job_of(other))
