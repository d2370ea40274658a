"""A Spark standalone cluster for the tests: a master and two workers, each a process of its own on the loopback."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.request import urlopen

from tests.stream.servers.processes import Server, free_port, listens, running, until


class Cluster(Server):
    """A context manager; inside it `url` is the master's. A driver needs `spark.driver.host=127.0.0.1`."""

    url: str

    def __init__(self, workers: int = 2, cores: int = 1, memory: str = "1g") -> None:
        self._workers, self._cores, self._memory = workers, cores, memory
        super().__init__()

    def alive(self) -> int:
        """How many workers the master knows to be alive."""
        try:
            with urlopen(f"http://127.0.0.1:{self._web}/json/", timeout=10) as answer:
                return int(json.loads(answer.read())["aliveworkers"])
        except (OSError, ValueError):  # it does not answer yet, or not in full
            return 0

    def kill_a_worker(self) -> None:
        """Ends a worker and with it its executors, as a lost machine would."""
        process = next(process for process in self.workers if process.poll() is None)
        process.kill()
        process.wait()

    def _start(self) -> None:
        import pyspark

        scratch = TemporaryDirectory(prefix="weever-cluster-", ignore_cleanup_errors=True)
        folder = Path(self._stack.enter_context(scratch))
        script = str(Path(pyspark.__file__).parent / "bin" / "spark-class")
        environment = {
            **os.environ,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_WORKER_DIR": str(folder / "work"),
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
            "PYSPARK_PYTHON": sys.executable,
        }
        port, self._web = free_port(), free_port()
        self.url = f"spark://127.0.0.1:{port}"
        log = folder / "master.txt"
        command = [script, "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(port)]
        master = self._stack.enter_context(
            running([*command, "--webui-port", str(self._web)], log, env=environment, cwd=folder)
        )
        until(lambda: listens(port), master, log)
        size = ["--cores", str(self._cores), "--memory", self._memory, "--webui-port", "0", "--host", "127.0.0.1"]
        command = [script, "org.apache.spark.deploy.worker.Worker", *size, self.url]
        self.workers = [
            self._stack.enter_context(running(command, folder / f"worker{i}.txt", env=environment, cwd=folder))
            for i in range(self._workers)
        ]
        until(lambda: self.alive() == self._workers, master, log)
