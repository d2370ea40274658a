"""The image's entry point as Spark on Kubernetes calls it: `driver`, then options and the main file for spark-submit.

Catches: a job that cannot be submitted at all; SIGTERM that ends the JVM, which is the parent of Python there, and with
it a batch under way; an exit code that gets lost on the way.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
JOB = """\
table: parcels
key: id
columns: {{id: bigint, zip: string, city: string}}
source: {{kind: files, path: {folder}/feed}}
rules: [{{name: zip_determines_city, fd: zip -> city}}]
sinks: [{{kind: files, path: {folder}/found}}]
state: {{checkpoint: {folder}/checkpoint, shards: 1}}
"""
ROWS = [
    {"id": 1, "zip": "1", "city": "Lima", "_change_type": "upsert", "_commit_version": 1},
    {"id": 2, "zip": "1", "city": "Cusco", "_change_type": "upsert", "_commit_version": 1},
]


@pytest.mark.slow
def test_a_submitted_driver_ends_in_good_order_on_sigterm(tmp_path: Path) -> None:
    import pyspark

    (tmp_path / "feed").mkdir()
    (tmp_path / "feed" / "1.json").write_text("\n".join(map(json.dumps, ROWS)), encoding="utf-8")
    job, out, log = tmp_path / "job.yaml", tmp_path / "out.txt", tmp_path / "log.txt"
    job.write_text(JOB.format(folder=tmp_path), encoding="utf-8")
    environment = {
        **os.environ,
        "SPARK_HOME": str(Path(pyspark.__file__).parent),
        "SPARK_DRIVER_BIND_ADDRESS": "127.0.0.1",
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
    }
    command = [ROOT / "deploy/docker/entrypoint.sh", "driver", "--master", "local[1]"]
    command += ["--conf", "spark.sql.shuffle.partitions=1", "--conf", "spark.ui.enabled=false"]
    command += [ROOT / "deploy/spark-submit/main.py", "run", job, "--format", "json"]
    with out.open("w") as lines, log.open("w") as words:
        process = subprocess.Popen(command, stdout=lines, stderr=words, env=environment, cwd=tmp_path)
        try:
            until = time.monotonic() + 400
            while '"batch"' not in out.read_text() and process.poll() is None and time.monotonic() < until:
                time.sleep(0.2)
            process.send_signal(signal.SIGTERM)
            code = process.wait(120)
        finally:
            process.kill()
    [report] = [json.loads(line) for line in out.read_text().splitlines() if line.startswith("{")]
    assert report["open"] == {"zip_determines_city": 1}, log.read_text()[-3000:]
    assert code == 143
    # Python was asked, and stopped the session itself: an end of the JVM alone leaves no such word.
    assert "stopping with exitCode 0 from stop at" in log.read_text()
    [noted] = (tmp_path / "checkpoint" / "commits").glob("[0-9]*")
    assert noted.name == "0"
