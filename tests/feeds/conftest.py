"""One Spark for all tests of feeds; Delta comes with it where its jars are known."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest

pytest.importorskip("pyspark")


@pytest.fixture(scope="session")
def spark() -> Iterator[object]:
    from pyspark.sql import SparkSession

    from weever_stream.stream.jars import connectors

    jars = connectors("delta", "kafka")
    conf = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "1",
        "spark.databricks.delta.snapshotPartitions": "1",
        # Compiling takes seconds, and a test has a handful of rows; `test_exactness.py` turns it on.
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # Not the machine's: a test that leans on it must fail.
        "spark.sql.session.timeZone": "America/New_York",
        "spark.jars": ",".join(map(str, jars.paths)),
    }
    builder = SparkSession.builder.master("local[2]").appName("feeds")
    for name, value in conf.items():
        builder = builder.config(name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
