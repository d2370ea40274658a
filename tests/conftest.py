"""What all tests share: how Hypothesis draws, and Spark with the servers that it talks to.

Hypothesis has no deadline on a noisy machine, and prints failing examples so that they can be run again. Properties in
the quick suite take as many examples as a few seconds allow; those marked `slow` go deeper. Seeds are fixed, so that a
run says the same twice. `HYPOTHESIS_PROFILE=fresh` draws new ones, for soaks by hand: a failure prints a
`@reproduce_failure` blob and is kept in `.hypothesis/`; add it to its test as an example. It is shown as it was found;
`HYPOTHESIS_PROFILE=shrink` takes minutes to make it small.

The tests of whole folders are shared out among a few processes; files and single tests run in this one, as with `-n 0`.
There is one Spark session a process, and one of each server, started when the first test asks. Tests that need one of
them are slow ones: the quick tests need no Java.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
from hypothesis import HealthCheck, Phase, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.stream.servers.debezium import Debezium
    from tests.stream.servers.kafka import Broker
    from tests.stream.servers.postgres import Postgres

settings.register_profile(
    "shrink",
    deadline=None,
    print_blob=True,
    derandomize=False,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile("fresh", settings.get_profile("shrink"), phases=[Phase.explicit, Phase.reuse, Phase.generate])
settings.register_profile("fixed", settings.get_profile("fresh"), derandomize=True, database=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fixed"))

SETTINGS = {
    # Tests are over before the optimizing compiler pays, and queries over ten rows before generated code does.
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.codegen.wholeStage": "false",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "1",
    # VACUUM lists a table's files in so many tasks; Spark's default is 10,000.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "4",
    # Not the machine's: a test that leans on it must fail.
    "spark.sql.session.timeZone": "America/New_York",
}


PROCESSES, MEMORY = 4, 4 << 30
"""The most processes, and the memory of the machine that each of them should find: Spark, servers, drivers of its own."""


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """How many processes share the tests."""
    if not all(Path(named).is_dir() for named in config.args):
        return 0
    return max(1, min(PROCESSES, psutil.cpu_count() or 1, psutil.virtual_memory().total // MEMORY))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks what needs Spark or a server as slow."""
    for item in items:
        if {"spark", "kafka", "postgres", "debezium"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.slow)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session of all tests. A task that fails is tried again, as on a cluster."""
    from weever_stream.stream.session import session

    root = str(Path(__file__).parents[1])
    with pytest.MonkeyPatch.context() as environment:
        # Python workers import functions of the tests by their modules' names.
        environment.setenv("PYTHONPATH", os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH")))))
        environment.delenv("SPARK_HOME", raising=False)
        folder = tmp_path_factory.mktemp("spark")
        places = {"spark.local.dir": str(folder / "local"), "spark.sql.warehouse.dir": str(folder / "warehouse")}
        started = session(["delta", "kafka"], master="local[2,4]", conf={**SETTINGS, **places}, app="weever tests")
        yield started
        started.stop()


@pytest.fixture(scope="session")
def kafka() -> Iterator[Broker]:
    """A broker."""
    from tests.stream.servers.kafka import Broker

    with Broker() as broker:
        yield broker


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A database whose changes can be decoded."""
    from tests.stream.servers.postgres import Postgres

    with Postgres() as server:
        yield server


@pytest.fixture(scope="session")
def debezium(kafka: Broker, postgres: Postgres) -> Iterator[Debezium]:
    """Kafka Connect with Debezium between the two."""
    from tests.stream.servers.debezium import Debezium

    with Debezium(kafka, postgres) as connect:
        yield connect
