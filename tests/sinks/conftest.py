"""One Spark session for the tests of sinks, as a job has it, but for another time zone than the machine's."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    from weever_stream.stream.session import session

    settings = {
        "spark.databricks.delta.snapshotPartitions": "1",
        # Queries over ten rows spend their time on compiling: interpreted they take a third.
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.codegen.wholeStage": "false",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.sql.session.timeZone": "America/New_York",
        "spark.sql.shuffle.partitions": "2",
    }
    made = session(["delta", "kafka"], conf=settings, app="sinks")
    yield made
    made.stop()
