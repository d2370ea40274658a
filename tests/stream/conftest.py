"""Spark and the servers that its tests talk to: one of each for the whole run, started when the first test asks."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.stream.servers.debezium import Debezium
from tests.stream.servers.kafka import Broker
from tests.stream.servers.postgres import Postgres

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUICK_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Two seconds less to start, and less work for two cores: tests are over before the optimizing compiler pays."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session of all tests. A task that fails is tried again, as on a cluster."""
    from weever_stream.stream.session import session

    root = str(Path(__file__).parents[2])
    with pytest.MonkeyPatch.context() as environment:
        # Python workers import functions of the tests by their modules' names.
        environment.setenv("PYTHONPATH", os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH")))))
        environment.delenv("SPARK_HOME", raising=False)
        folder = tmp_path_factory.mktemp("spark")
        started = session(
            ["delta", "kafka"],
            master="local[2,4]",
            conf={
                "spark.driver.extraJavaOptions": f"{QUICK_START} -Dderby.system.home={folder}",
                "spark.driver.memory": "2g",
                "spark.local.dir": str(folder / "local"),
                "spark.sql.warehouse.dir": str(folder / "warehouse"),
                "spark.sql.shuffle.partitions": "2",
                "spark.databricks.delta.snapshotPartitions": "1",
            },
            app="weever tests",
        )
        yield started
        started.stop()


@pytest.fixture(scope="session")
def kafka() -> Iterator[Broker]:
    """A broker."""
    with Broker() as broker:
        yield broker


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A database whose changes can be decoded."""
    with Postgres() as server:
        yield server


@pytest.fixture(scope="session")
def debezium(kafka: Broker, postgres: Postgres) -> Iterator[Debezium]:
    """Kafka Connect with Debezium between the two."""
    with Debezium(kafka, postgres) as connect:
        yield connect
