"""Debezium for the tests: Kafka Connect with the PostgreSQL connector, from their Maven jars."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.error import URLError
from urllib.request import Request, urlopen

from confluent_kafka.admin import AdminClient, NewTopic

from tests.stream.servers.kafka import Broker
from tests.stream.servers.maven import DEBEZIUM, KAFKA, jars_of
from tests.stream.servers.postgres import Postgres
from tests.stream.servers.processes import Server, free_port, java_program, listens, running, until

PROPERTIES = """\
bootstrap.servers={servers}
key.converter=org.apache.kafka.connect.json.JsonConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
key.converter.schemas.enable=false
value.converter.schemas.enable=false
offset.storage.file.filename={folder}/offsets
offset.flush.interval.ms=1000
listeners=http://127.0.0.1:{port}
plugin.path={folder}/plugins
"""
PLUGIN = ("debezium", "postgresql", "protobuf", "sketches", "jackson-datatype-jsr310")
"""What the plugin's own folder holds; Connect has the rest, and two copies of it do not go together."""


class Debezium(Server):
    """A context manager; inside it `watch` starts connectors. `broker` and `postgres` are what it stands between."""

    def __init__(self, broker: Broker, postgres: Postgres) -> None:
        self.broker, self.postgres = broker, postgres
        super().__init__()

    def watch(self, name: str, *tables: str, **options: str) -> list[str]:
        """Streams changes of tables (`public.parcels`); returns their topics, in order. Ready when this returns.

        The topics are created here: the connector creates them with its first message, which may be later.

        Options are Debezium's with their dots as underscores: `skipped_operations="none"`.
        """
        config = {
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "database.hostname": self.postgres.host,
            "database.port": str(self.postgres.port),
            "database.user": self.postgres.user,
            "database.password": self.postgres.password,
            "database.dbname": self.postgres.database,
            "plugin.name": "pgoutput",
            "publication.name": f"{name}_publication",
            "publication.autocreate.mode": "filtered",
            "slot.name": name,
            "slot.drop.on.stop": "true",
            "topic.prefix": name,
            "table.include.list": ",".join(tables),
            "poll.interval.ms": "50",
            **{option.replace("_", "."): value for option, value in options.items()},
        }
        topics = [f"{name}.{table}" for table in tables]
        admin = AdminClient({"bootstrap.servers": self.broker.servers})
        for created in admin.create_topics([NewTopic(topic, 1, 1) for topic in topics]).values():
            created.result(60)
        self._ask("PUT", f"connectors/{name}/config", config)
        until(lambda: self._streams(name), self._process, self._log)
        return topics

    def forget(self, name: str) -> None:
        """Stops a connector and drops its slot."""
        self._ask("DELETE", f"connectors/{name}")
        active = f"select count(*) from pg_replication_slots where slot_name = '{name}' and active"
        end = time.monotonic() + 60
        while self.postgres.run(active) != "0":
            assert time.monotonic() < end, f"the slot {name} is still in use"
            time.sleep(0.1)
        self.postgres.run(
            f"select pg_drop_replication_slot(slot_name) from pg_replication_slots where slot_name = '{name}'"
        )

    def _start(self) -> None:
        simple = "org.slf4j:slf4j-simple:1.7.36"
        connect = [f"org.apache.kafka:{part}:{KAFKA}" for part in ("connect-runtime", "connect-json")]
        jars = jars_of("connect", *connect, simple)
        connector = jars_of("debezium", f"io.debezium:debezium-connector-postgres:{DEBEZIUM}")
        scratch = TemporaryDirectory(prefix="weever-debezium-", ignore_cleanup_errors=True)
        folder = Path(self._stack.enter_context(scratch))
        plugin = folder / "plugins" / "postgres"
        plugin.mkdir(parents=True)
        for jar in connector.iterdir():
            if jar.name.startswith(PLUGIN):
                shutil.copy(jar, plugin)
        self._port = free_port()
        config = folder / "worker.properties"
        config.write_text(PROPERTIES.format(servers=self.broker.servers, folder=folder, port=self._port))
        java = [java_program(), "-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        java += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{jars}/*"]
        self._log = folder / "log.txt"
        command = [*java, "org.apache.kafka.connect.cli.ConnectStandalone", str(config)]
        self._process = self._stack.enter_context(running(command, self._log))
        until(lambda: listens(self._port) and self._answers(), self._process, self._log)

    def _streams(self, name: str) -> bool:
        """Whether the connector reads the log; changes that are made before that are in its snapshot."""
        status = self._ask("GET", f"connectors/{name}/status")
        for task in status.get("tasks", ()):
            assert task["state"] != "FAILED", task["trace"]
        return self.postgres.run(f"select active from pg_replication_slots where slot_name = '{name}'") == "t"

    def _answers(self) -> bool:
        try:
            return isinstance(self._ask("GET", "connectors"), list)
        except URLError:
            return False

    def _ask(self, method: str, path: str, body: Any = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = Request(f"http://127.0.0.1:{self._port}/{path}", data, {"Content-Type": "application/json"})
        request.method = method
        try:
            with urlopen(request, timeout=60) as answer:
                return json.loads(answer.read() or b"null")
        except URLError as error:
            if getattr(error, "code", None) == 404 and method == "GET":
                error.close()  # type: ignore[attr-defined]
                return {}  # a connector that has only just been asked for
            raise
