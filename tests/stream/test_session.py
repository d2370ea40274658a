"""The session: what is set, what a user has set stays, and a missing connector is told."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from weever_stream.stream.jars import connectors
from weever_stream.stream.session import session

SHOW = """
from weever_stream.stream.session import session
spark = session({kinds!r}, conf={conf!r})
print(spark.sparkContext.master, *(spark.conf.get(name) for name in {names!r}))
print(spark.range(2).mapInArrow(lambda batches: batches, "id long").count())
"""


def run(command: list[str], kinds: list[str], conf: dict[str, str], *names: str) -> subprocess.CompletedProcess[str]:
    """A program that starts a session, in a process without this one's Spark."""
    root = Path(__file__).parents[2]
    file = Path(os.environ["TMP_PROGRAM"])
    file.write_text(SHOW.format(kinds=kinds, conf=conf, names=names))
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    environment |= {"PYTHONPATH": str(root)}
    done = [*command, str(file)]
    return subprocess.run(done, capture_output=True, text=True, env=environment, cwd=file.parent, timeout=300)


@pytest.fixture(autouse=True)
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMP_PROGRAM", str(tmp_path / "program.py"))


def submit(*options: str) -> list[str]:
    """Spark's own command, with the Python of these tests whether or not its environment is active."""
    ours = ["--master", "local[2]", "--conf", f"spark.pyspark.python={sys.executable}"]
    return [str(Path(pyspark.__file__).parent / "bin" / "spark-submit"), *ours, *options]


def test_a_running_session_is_used_again(spark: SparkSession) -> None:
    assert session(["files", "console", "kafka", "delta"], master="local[7]", app="other") is spark
    assert (spark.sparkContext.master, spark.sparkContext.appName) == ("local[2,4]", "weever tests")


def test_the_copy_of_a_query_is_not_taken_for_the_session(spark: SparkSession) -> None:
    """Python takes the session that made the last frame for the active one, and a sink's is a copy with other settings."""
    copied = SparkSession(spark.sparkContext, spark._jsparkSession.cloneSession())
    copied.createDataFrame([(1,)], "a int")
    assert session(["files"]) is spark


def test_state_is_kept_in_rocksdb_by_its_changes(spark: SparkSession) -> None:
    store = "spark.sql.streaming.stateStore"
    assert spark.conf.get(f"{store}.providerClass").endswith(".RocksDBStateStoreProvider")
    assert spark.conf.get(f"{store}.rocksdb.changelogCheckpointing.enabled") == "true"


def test_a_users_settings_stay(spark: SparkSession) -> None:
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert spark.conf.get("spark.databricks.delta.snapshotPartitions") == "1"
    spark.conf.set("spark.sql.streaming.stopTimeout", "7s")
    session(["delta"])
    assert spark.conf.get("spark.sql.streaming.stopTimeout") == "7s"
    spark.conf.set("spark.sql.streaming.stopTimeout", "60s")


@pytest.mark.slow
def test_a_session_of_its_own_is_local_and_quiet() -> None:
    done = run([sys.executable], ["delta"], {}, "spark.sql.shuffle.partitions", "spark.sql.extensions")
    cores = len(os.sched_getaffinity(0))
    assert done.stdout == f"local[*,4] {cores} io.delta.sql.DeltaSparkSessionExtension\n2\n", done.stderr
    assert done.stderr == "", "nor does the JVM warn of modules that Spark's launcher asks for"


@pytest.mark.slow
def test_a_jvm_that_runs_out_of_memory_says_so_and_what_to_set(tmp_path: Path) -> None:
    """Not a Java trace on the terminal, and not a query that hangs because some thread is gone."""
    log = tmp_path / "with a blank" / "spark.log"
    program = tmp_path / "program.py"
    program.write_text(
        "from pathlib import Path\n"
        "from weever_stream.cli.supervising import jvm_may_end\n"
        "from weever_stream.errors import EngineError\n"
        "from weever_stream.stream.session import session\n"
        f"spark = session([], conf={{'spark.driver.memory': '512m'}}, log=Path({str(log)!r}))\n"
        "try:\n"
        "    with jvm_may_end(spark):\n"
        "        held = spark._jvm.java.util.ArrayList()\n"
        "        for _ in range(64):\n"
        "            held.add(spark._jvm.java.nio.ByteBuffer.allocate(64 << 20))\n"
        "except EngineError as error:\n"
        "    print(error)\n"
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    environment |= {"PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run([sys.executable, program], capture_output=True, text=True, env=environment, timeout=300)
    message, hint = done.stdout.splitlines()
    assert message == (
        "Spark's JVM ran out of memory (Java heap space): its heap of 512 MiB is too small for the batch"
    ), done.stderr
    assert "`spark.driver.memory`" in hint
    assert str(log) in hint
    assert done.stderr == "Terminating due to java.lang.OutOfMemoryError: Java heap space\n"
    assert "OutOfMemoryError" in log.read_text()
    assert log.stat().st_mode & 0o077 == 0, "traces may quote rows"


@pytest.mark.slow
def test_what_spark_submit_was_told_stays() -> None:
    jars = ",".join(map(str, connectors("delta", "kafka").paths))
    told = ["--jars", jars, "--conf", "spark.sql.shuffle.partitions=7", "--conf", "spark.sql.extensions=a.B"]
    done = run(submit(*told), ["delta", "kafka"], {}, "spark.sql.shuffle.partitions", "spark.sql.extensions")
    assert done.stdout == "local[2] 7 a.B,io.delta.sql.DeltaSparkSessionExtension\n2\n", done.stderr


@pytest.mark.slow
def test_a_connector_that_spark_submit_was_not_given_is_named() -> None:
    done = run(submit(), ["kafka"], {})
    assert done.returncode != 0
    # spark-submit prints what Python writes to stderr on stdout
    assert "EngineError: the running Spark has no connector for kafka" in done.stdout
    assert "spark-submit --packages io.delta:delta-spark_" in done.stdout
