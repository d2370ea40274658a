"""A Kafka broker for the tests: in a container where a Docker engine answers, else from its Maven jars.

`KAFKA_BOOTSTRAP` names one that runs already; it is used as it is.
"""

from __future__ import annotations

import os
import subprocess
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.stream.servers.maven import KAFKA, jars_of
from tests.stream.servers.processes import Server, docker_answers, free_port, java_program, running, until

PROPERTIES = """\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.quorum.voters=1@127.0.0.1:{controller}
log.dirs={folder}/data
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
num.partitions=1
"""


class Broker(Server):
    """A context manager; inside it `servers` holds the address."""

    servers: str

    def _start(self) -> None:
        if named := os.environ.get("KAFKA_BOOTSTRAP"):
            self.servers = named
        elif docker_answers():
            self._in_a_container()
        else:
            self._from_jars()

    def _in_a_container(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from testcontainers.kafka import KafkaContainer

            container = self._stack.enter_context(KafkaContainer().with_kraft())
        self.servers = container.get_bootstrap_server()

    def _from_jars(self) -> None:
        jars = jars_of("kafka", f"org.apache.kafka:kafka_2.13:{KAFKA}", "org.slf4j:slf4j-simple:1.7.36")
        folder = Path(self._stack.enter_context(TemporaryDirectory(prefix="weever-kafka-", ignore_cleanup_errors=True)))
        port = free_port()
        config = folder / "server.properties"
        config.write_text(PROPERTIES.format(port=port, controller=free_port(), folder=folder))
        # Two cores are shared with Spark: a small heap, and no optimizing compiler for a server that lives a minute.
        java = [java_program(), "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        java += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{jars}/*"]
        # The id is any UUID in URL-safe base64: one broker, one folder, no need for a new one.
        format_ = [*java, "kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qg", "-c", str(config)]
        subprocess.run(format_, check=True, capture_output=True, timeout=120)
        log = folder / "log.txt"
        process = self._stack.enter_context(running([*java, "kafka.Kafka", str(config)], log))
        self.servers = f"127.0.0.1:{port}"
        until(lambda: _answers(self.servers), process, log)


def _answers(servers: str) -> bool:
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient

    client = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    try:
        return bool(client.list_topics(timeout=2).brokers)
    except KafkaException:
        return False
