"""`weever run` and `weever state` as processes of their own, over a folder of change files.

Catches: a job that starts Spark only to find that its file is wrong; messages without place or hint; wrong exit codes;
a SIGTERM that loses or repeats changes; a checkpoint that is used for other rules; state that cannot be looked into; a
garbage collection that deletes what is needed or keeps what is not.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests import oracle
from tests.conftest import SETTINGS
from tests.stream.jobs import RULES, job_text
from tests.stream.test_files_stream import Feed, Folder, together
from weever_stream.cli import run

ROOT = str(Path(__file__).parents[2])
QUICK = {name: SETTINGS[name] for name in ("spark.sql.codegen.factoryMode", "spark.sql.codegen.wholeStage")}
SHORT_LIVED = SETTINGS["spark.driver.extraJavaOptions"]
"""Ten drivers are started here, each for a few rows."""
PARTS = {
    "table": "table: rows",
    "key": "key: id",
    "rules": "rules:\n  - {name: dependency, fd: a -> c}",
    "source": "source: {kind: files, path: /nowhere}",
    "state": "state: {checkpoint: /nowhere/checkpoint}",
}


def job_file(folder: Path, **parts: str) -> str:
    path = folder / "job.yaml"
    path.write_text("\n".join({**PARTS, **parts}.values()) + "\n")
    return str(path)


@pytest.mark.parametrize(
    ("parts", "line", "said", "hint"),
    [
        ({"source": ""}, "", "`source` is missing", "for example source: {kind: delta"),
        ({"state": ""}, "", "`state` is missing", "for example state: {checkpoint"),
        ({"key": ""}, "", "`key` is missing", "by its key"),
        ({"source": "source: {kind: ftp, path: /x}"}, ":5:", "`kind` is missing or unknown", "one of"),
        ({"source": "source: {kind: files}"}, ":5:", "`path` is missing", ""),
        ({"source": "source: {kind: delta}"}, ":5:", "a Delta source has a path or a table", ""),
        ({"source": "source: {kind: files, pth: /x, path: /x}"}, ":5:", "there is no field `pth` here", "path"),
        ({"state": "state: {checkpoint: /x, shards: 0}"}, ":6:", "`shards`", ""),
        ({"trigger": "trigger: soon"}, ":7:", "'soon' is no duration", ""),
        ({"sinks": "sinks:\n  - {kind: mail}"}, ":8:", "`kind` is missing or unknown", "console"),
        ({"source": "source: {kind: kafka, servers: '${env:NO_SUCH_NAME}', topic: t}"}, ":5:", "NO_SUCH_NAME", ""),
        ({"rules": "rules:\n  - {name: r, fd: a = c}"}, ":4:", "", ""),
    ],
)
def test_a_bad_job_file_is_told_with_place_and_hint_before_spark_starts(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    parts: dict[str, str],
    line: str,
    said: str,
    hint: str,
):
    monkeypatch.setattr("weever_stream.stream.session.session", lambda *_, **__: pytest.fail("Spark was started"))
    path = job_file(tmp_path, **parts)
    for command in (["run", path, "--once"], ["state", "inspect", path]):
        assert run(command) == 3
        told = capsys.readouterr()
        assert told.out == ""
        assert told.err.startswith(f"weever: {path}{line}"), told.err
        assert said in told.err
        assert hint in told.err
        assert "Traceback" not in told.err


def test_every_mistake_of_a_job_file_is_told_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = job_file(tmp_path, source="source: {kind: files}", state="state: {checkpoint: /x, shards: 0}", key="")
    assert run(["run", path]) == 3
    told = capsys.readouterr().err
    assert told.count(path) == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "JOB", "--once", "--every", "5 seconds"], "--once looks for changes one time"),
        (["run", "JOB", "--every", "soon"], "--every: 'soon' is no duration"),
        (["run", "JOB", "--from-version", "3"], "--from-version is for Delta sources"),
        (["state", "gc", "JOB", "--older-than", "ages"], "--older-than: 'ages' is no duration"),
        (["state", "mend", "JOB"], "mend"),
        (["run", "/no/such/job.yaml"], "/no/such/job.yaml"),
    ],
)
def test_a_bad_call_is_told_before_spark_starts(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    said: str,
):
    monkeypatch.setattr("weever_stream.stream.session.session", lambda *_, **__: pytest.fail("Spark was started"))
    path = job_file(tmp_path)
    assert run([path if argument == "JOB" else argument for argument in arguments]) == 3
    assert said in capsys.readouterr().err


def test_a_bad_job_file_does_not_even_load_spark(tmp_path: Path):
    program = (
        "import sys; from weever_stream.cli import run; code = run(['run', sys.argv[1]]);"
        "print(code, 'pyspark' in sys.modules, end='')"
    )
    path = job_file(tmp_path, source="source: {kind: files}")
    done = subprocess.run([sys.executable, "-c", program, path], capture_output=True, text=True, cwd=ROOT, timeout=60)
    assert done.stdout == "3 False", done.stderr


class Command:
    """The `weever` command on one job, whose files and outputs it knows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.feed, self.files = Feed(41), Folder(folder / "feed")
        self.job = folder / "job.yaml"
        self.describe({name: RULES[name] for name in ("dependency", "crossed", "one_row")})

    def describe(self, rules: dict[str, Any]) -> None:
        source = {"kind": "files", "path": str(self.files.path), "options": {"maxFilesPerTrigger": 1}}
        sink = {"kind": "files", "path": str(self.folder / "out")}
        self.job.write_text(job_text(source, self.folder, rules, sinks=[sink], spark=QUICK, inline_bytes=0))

    def add(self) -> None:
        self.files.add(together(self.feed.commits(8)))

    def add_many(self) -> None:
        """Rows enough for a run file, none of which violates anything."""
        alike = {"a": 10, "b": 20, "n": 5, "f": 1.0, "c": "x"}
        for key in range(1000, 1400):
            self.feed.table[key] = {"id": key, **alike}
        changes = {"_change_type": "insert", "_commit_version": self.feed.version}
        self.files.add({**self.feed.table[key], **changes} for key in range(1000, 1400))

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-m", "weever_stream.cli", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": ROOT, "JDK_JAVA_OPTIONS": SHORT_LIVED},
            start_new_session=True,
        )

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        process = self.start(*arguments)
        out, err = process.communicate(timeout=300)
        return subprocess.CompletedProcess(process.args, process.returncode, out, err)

    def deltas(self) -> list[dict[str, Any]]:
        """All that the sink holds, batch after batch."""
        folders = sorted((self.folder / "out").glob("batch_id=*"), key=lambda path: int(path.name.partition("=")[2]))
        files = [file for folder in folders for file in folder.glob("*.json")]
        return [json.loads(line) for file in files for line in file.read_text().splitlines()]

    def agreed(self) -> None:
        """The log tells every violation once, in turns, and sums up to the truth."""
        summed: Counter[tuple[str, str, str | None]] = Counter()
        for row in self.deltas():
            violation = (row["rule"], row["left_key"], row["right_key"])
            summed[violation] += 1 if row["change"] == "added" else -1
            assert summed[violation] in (0, 1), "nothing is told twice"
        found = oracle.violations(oracle.written_file(self.job.read_text()), self.feed.table.values(), "id")
        expected = {(rule, str(left), None if right is None else str(right)) for rule, left, right in found}
        assert expected
        assert set(+summed) == expected


@pytest.mark.slow
def test_a_job_is_run_stopped_gone_on_with_and_looked_into(tmp_path: Path):
    weever = Command(tmp_path)
    weever.add()
    weever.add_many()

    # Once, told in JSON.
    done = weever("run", str(weever.job), "--once", "--format", "json")
    assert done.returncode == 0, done.stderr
    reports = [json.loads(line) for line in done.stdout.splitlines()]
    assert [report["batch"] for report in reports] == [0, 1]
    assert json.loads(reports[-1]["position"]) == {"file": max(weever.files.path.iterdir()).name, "entry": 1}
    assert reports[-1]["rejected"] == 0
    assert sum(reports[-1]["open"].values()) == sum(report["added"] - report["removed"] for report in reports)
    weever.agreed()

    # Until it is told to stop, while changes come in.
    process = weever.start("run", str(weever.job), "--every", "200 ms")
    lines: list[str] = []
    assert process.stdout is not None
    reading = threading.Thread(target=lambda: lines.extend(iter(process.stdout.readline, "")))  # type: ignore[union-attr]
    reading.start()
    try:
        weever.add()
        end = time.monotonic() + 120
        while not lines and time.monotonic() < end and process.poll() is None:
            time.sleep(0.1)
        weever.add()
        weever.add()
        time.sleep(0.5)
        os.killpg(process.pid, signal.SIGTERM)  # the JVM too, as `timeout` and systemd do
        assert process.wait(120) == 143
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        reading.join(10)
        with process.stderr as errors:  # type: ignore[union-attr]
            said = errors.read()
        process.stdout.close()
    assert "Exception" not in said, said
    assert "weever: " not in said, said
    assert "batch 2" in lines[0]
    assert "open" in lines[0]
    assert "s of it in shards" in lines[0]

    # And on, without a gap.
    weever.add()
    done = weever("run", str(weever.job), "--once")
    assert done.returncode == 0, done.stderr
    assert f"batch {2 + len(lines)} " in done.stdout.splitlines()[0], "the next batch follows the last one"
    assert f'at {{"file":"{max(weever.files.path.iterdir()).name}","entry":5}}' in done.stdout.splitlines()[-1]
    assert "starting Spark" in done.stderr
    weever.agreed()

    # Nothing new: nothing is told again.
    before = weever.deltas()
    weever.describe({name: RULES[name] for name in ("dependency", "no_equality", "one_row")})
    done = weever("run", str(weever.job), "--once")
    assert done.returncode == 3
    assert "was made for other rules: crossed is gone, no_equality is new" in done.stderr
    assert "hint: `weever plan` shows what that would do" in done.stderr
    assert weever.deltas() == before

    # What is in the checkpoint.
    weever.describe({name: RULES[name] for name in ("dependency", "crossed", "one_row")})
    runs = tmp_path / "checkpoint" / "weever" / "runs"
    needed = set(runs.rglob("*.run"))
    assert needed
    (runs / "00001").mkdir(exist_ok=True)
    for name in ("old", "young"):
        (runs / "00001" / f"{name}.run").write_bytes(b"left by a task that failed")
    for path in runs.rglob("*.run"):
        if path.name != "young.run":
            os.utime(path, (time.time() - 7200,) * 2)
    done = weever("state", "inspect", str(weever.job), "--verify", "--format", "json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["wrong"] == []
    assert sum(line["open"] for line in told["shards"]) == len(
        oracle.violations(oracle.written_file(weever.job.read_text()), weever.feed.table.values(), "id")
    )
    assert told["skew"] >= 1
    done = weever("state", "gc", str(weever.job), "--dry-run", "--format", "json")
    assert json.loads(done.stdout) == {"deleted": False, "files": ["00001/old.run"]}, done.stderr
    assert (runs / "00001" / "old.run").exists()
    done = weever("state", "gc", str(weever.job))
    assert done.stdout == "1 run files of 26 bytes that no shard needs deleted\n", done.stderr
    assert set(runs.rglob("*.run")) == needed | {runs / "00001" / "young.run"}


@pytest.mark.slow
def test_a_source_that_is_not_there_and_damaged_state_end_with_3_and_a_hint(tmp_path: Path):
    weever = Command(tmp_path)
    weever.files.path.rmdir()
    done = weever("run", str(weever.job), "--once")
    assert done.returncode == 3
    assert f"there is no folder {weever.files.path}" in done.stderr
    assert "hint: make it before the start" in done.stderr
    assert "Traceback" not in done.stderr

    weever.files.path.mkdir()
    weever.add_many()
    assert weever("run", str(weever.job), "--once", "--quiet").returncode == 0
    done = weever("run", str(weever.job), "--once")
    assert (done.returncode, done.stdout) == (0, "")
    assert f"nothing new: the folder {weever.files.path} is checked" in done.stderr
    run_file = max((tmp_path / "checkpoint").rglob("*.run"), key=lambda path: path.stat().st_size)
    content = bytearray(run_file.read_bytes())
    content[len(content) // 2] ^= 1
    run_file.write_bytes(content)
    done = weever("state", "inspect", str(weever.job), "--verify")
    assert done.returncode == 7, done.stderr
    assert f"the run file {run_file.parent.name}/{run_file.name}" in done.stdout
    assert "is torn or was changed" in done.stdout
    before = weever.deltas()
    weever.feed.version += 1
    weever.add_many()
    done = weever("run", str(weever.job), "--once")
    assert done.returncode == 3
    assert f"the run file {run_file.parent.name}/{run_file.name}" in done.stderr
    assert "hint: restore the file" in done.stderr
    assert weever.deltas() == before


def of_session(leader: int) -> dict[psutil.Process, list[str]]:
    """The processes of a session, with their commands."""
    found = {}
    for one in psutil.process_iter():
        with suppress(OSError, psutil.Error):
            if os.getsid(one.pid) == leader and one.status() != psutil.STATUS_ZOMBIE:
                found[one] = one.cmdline()
    return found


@pytest.mark.slow
def test_a_signal_while_java_starts_leaves_no_jvm(tmp_path: Path):
    weever = Command(tmp_path)
    process = weever.start("run", str(weever.job))
    while not any("org.apache.spark.deploy.SparkSubmit" in command for command in of_session(process.pid).values()):
        assert process.poll() is None, "it ends only when it is asked to"
    os.killpg(process.pid, signal.SIGTERM)
    process.wait(120)
    try:
        assert process.returncode == 143
        psutil.wait_procs(of_session(process.pid), timeout=15)
        assert not of_session(process.pid), "a JVM that nobody will ever end"
    finally:
        for one in of_session(process.pid):
            one.kill()
        process.communicate()
