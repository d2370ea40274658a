"""`discover` on Spark finds the rules that it finds on one machine, with many small parts.

Catches a pair of rows that meets in no part, an outcome that differs between a part and the table, candidates that
nobody checked, columns that meet in one place and not in the other, and counts that are off.
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from decimal import Decimal
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pytest

from benchmarks import workloads
from weever_stream.cli import run
from weever_stream.discover import Discovery
from weever_stream.discover import discover as on_one_machine
from weever_stream.errors import DataError
from weever_stream.rules import Op, write_rule
from weever_stream.stream import parted
from weever_stream.stream.discovering import discover

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


def mixed(rows: int) -> pa.Table:
    """Nulls, text, instants, days, decimals that share values with whole numbers; and a column of no value."""
    chance = np.random.default_rng(11)
    kind = np.where(chance.random(rows) < 0.6, 0, chance.integers(1, 5, rows))
    low = chance.integers(0, 50, rows)
    high = low + chance.integers(0, 3, rows)
    begin = datetime(2024, 3, 10, tzinfo=timezone.utc)
    return pa.table(
        {
            "kind": pa.array([None if one == 4 else f"k{one}" for one in kind]),
            "low": pa.array(low, pa.int64()),
            "high.est": pa.array([None if one == 7 else Decimal(int(one)) for one in high], pa.decimal128(20, 2)),
            "at": pa.array([begin + timedelta(minutes=30 * int(one)) for one in low], pa.timestamp("us", "UTC")),
            "day": pa.array([(begin + timedelta(days=int(one) // 5)).date() for one in high]),
            "share": pa.array(chance.choice([0.0, -0.0, float("nan"), 1.5], rows)),
            "nothing": pa.nulls(rows, pa.int64()),
        }
    )


def told(found: Discovery) -> dict[str, tuple[int, int, float]]:
    return {write_rule(one.rule): (one.support, one.violations, one.error) for one in found.rules}


def test_the_rules_of_the_tax_table_are_those_of_one_machine(spark: SparkSession) -> None:
    columns = ["areacode", "city", "state", "zip", "salary", "rate"]
    made = workloads.generate("tax", 1500, 0.002)
    table = pa.table({name: made[name] for name in columns})
    options = {"cross": False, "max_predicates": 3, "top": None}
    local = on_one_machine(table, **options)
    found = discover(spark.createDataFrame(table).repartition(3), rows_at_once=500, **options)
    assert found.exact
    assert told(found) == told(local)
    assert found.total == local.total > 10
    assert (found.rows, found.columns) == (1500, tuple(columns))


def test_columns_that_meet_nulls_text_and_times(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parted, "SCANNED", -1)  # no part is scanned whole: all go by completion
    table = mixed(500)
    local = on_one_machine(table, top=None, max_predicates=3)
    frame = spark.createDataFrame(table).repartition(2)
    found = discover(frame, top=None, max_predicates=3, rows_at_once=200)
    assert found.exact
    assert told(found) == told(local)
    crossed = [p for one in found.rules for p in one.rule.predicates if len({column.name for column in p.columns}) > 1]
    assert {column.name for p in crossed for column in p.columns} == {"low", "high.est"}
    assert not any(all(p.op is Op.EQ for p in one.rule.predicates) for one in found.rules)
    assert found.notes == local.notes
    assert any("nothing was left out: it has no value" in note for note in found.notes)
    with pytest.raises(DataError, match="there is no column lo"):
        discover(frame, columns=["lo"])


def test_the_command_reads_with_spark(
    spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(spark), "stop", lambda self: None)  # it is the session of all tests
    monkeypatch.chdir(tmp_path)
    data = tmp_path / "pay.csv"  # Spark's own folder is where it was started
    data.write_text("zip,city,pay\n" + "".join(f"{n % 60},c{n % 60 // 3},{n}\n" for n in range(300)))
    assert run(["discover", str(data), "--spark", "csv", "--rows-at-once", "200", "-o", "rules.yaml"]) == 0
    assert "zip determines city" in capfd.readouterr().out
    assert run(["check", "rules.yaml", str(data), "--mode", "count"]) == 0
    assert run(["discover", str(tmp_path / "nowhere"), "--spark", "parquet"]) == 3
    assert run(["discover", str(data), "--spark", "csv", "--error", "0.1"]) == 3
    assert "only exact rules" in capfd.readouterr().err
