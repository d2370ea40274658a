"""Secrets in every place that takes one, and a mark in the rows: a job runs, is looked into and fails in many ways.

Then they are searched for: on both streams, in the process list, in the whole checkpoint, the tables, Spark's event log
and its temporary files. Catches: a password on the JVM's command line; a setting that Spark shows in its pages because
its name does not sound secret; an exception that quotes options or rows; a representation that tells. Scenes are in
`scenes.py`.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.security.scenes import ROW, RULE, SCENES, SECRETS, write_jobs
from weever_stream.job.job import SPARK_HIDES, read_job
from weever_stream.rules.references import Secret
from weever_stream.stream.run import runs_of

ROOT = str(Path(__file__).parents[2])


@pytest.mark.parametrize("name", ["job", "sink", "letters", "source"])
def test_no_representation_of_a_job_shows_a_secret(name: str, tmp_path: Path):
    write_jobs(tmp_path)
    job = read_job(tmp_path / f"{name}.yaml", SECRETS)
    settings = job.settings
    store = runs_of(job)
    shown = [job, job.file, job.source, job.sinks, job.state, job.source.rejects, settings, store, vars(job)]
    for one in shown:
        for text in (repr(one), str(one), f"{one}"):
            assert not [secret for secret in SECRETS.values() if secret in text]
    assert store.filesystem["secret_key"] == SECRETS["STORE_SECRET"], "it is there, only not shown"
    secret = settings["spark.hadoop.fs.s3a.secret.key"]
    assert isinstance(secret, Secret)
    assert secret.reveal() == SECRETS["S3A_SECRET"]


def test_spark_is_told_to_hide_whatever_came_from_a_reference(tmp_path: Path):
    write_jobs(tmp_path)
    job = read_job(tmp_path / "sink.yaml", SECRETS)
    pattern = str(job.settings["spark.redaction.regex"])
    assert pattern.startswith(f"{SPARK_HIDES}|")
    for name in (r"kafka\.sasl\.jaas\.config", r"fs\.azure\.account\.key\.lake", r"spark\.weever\.plain"):
        assert name in pattern


class Watch:
    """The command lines of all descendants of a process, as long as it runs."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.seen: set[str] = set()
        self._process = process
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def _watch(self) -> None:
        while self._process.poll() is None:
            for one in descendants(self._process.pid):
                try:
                    self.seen.add(Path(f"/proc/{one}/cmdline").read_bytes().replace(b"\0", b" ").decode())
                except OSError:
                    continue
            time.sleep(0.1)

    def done(self) -> set[str]:
        self._thread.join(30)
        return self.seen


def descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            children.setdefault(parent, []).append(int(folder.name))
    found, asked = [], [root]
    while asked:
        of = children.get(asked.pop(), [])
        found += of
        asked += of
    return found


def holding(folder: Path, text: str) -> Iterator[Path]:
    """Files that have a text. A JVM that has just ended may still be deleting what it leaves: such files are passed."""
    for where, _, names in os.walk(folder):
        for path in (Path(where, name) for name in sorted(names)):
            with suppress(FileNotFoundError):
                if path.is_file() and text.encode() in path.read_bytes():
                    yield path.relative_to(folder)


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="the process list is read from /proc")
def test_whatever_a_job_does_no_secret_and_no_row_is_where_it_should_not_be(tmp_path: Path):
    folder = tmp_path / "job"
    folder.mkdir()
    environ = {**os.environ, "PYTHONPATH": ROOT, "PYTHONUNBUFFERED": "1", **write_jobs(folder)}
    environ.pop("WEEVER_DEBUG", None)
    with (folder / "out.txt").open("wb") as out, (folder / "err.txt").open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.security.scenes", str(folder)], cwd=ROOT, env=environ, stdout=out, stderr=err
        )
        watch = Watch(process)
        try:
            code = process.wait(1100)
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
    told, errors = (folder / "out.txt").read_text(), (folder / "err.txt").read_text()
    assert code == 0, errors[-3000:]
    assert json.loads((folder / "codes.json").read_text()) == SCENES, errors[-3000:]

    # The process list: Spark's scripts, the JVM and the Python workers.
    lines = watch.done()
    assert any("SparkSubmit" in line and "spark.eventLog.dir" in line for line in lines), "the launch was seen"
    assert any("daemon" in line for line in lines), "and the workers"
    for name, secret in SECRETS.items():
        assert not [line[:80] for line in lines if secret in line], name
    assert not [line[:80] for line in lines if ROW in line]

    # Everything on disk: streams, checkpoint, notes, tables, event log, Spark's own folders.
    events = [path.read_text() for path in (folder / "events").rglob("events_*")]
    for setting in ("spark.weever.plain", "fs.azure.account.key.lake.dfs.core.windows.net"):
        assert f'"{setting}":"*********(redacted)"' in events[0], "the event log was on, and had it"
    assert any("kafka.sasl.jaas.config=*********(redacted)" in text for text in events)
    for name, secret in SECRETS.items():
        assert {path.parts[0] for path in holding(folder, secret)} <= {"secrets"}, name

    # Rows are in the tables, the state and the dead letters, and where a person asked to see them.
    assert any(path.parts[0] == "tables" for path in holding(folder, ROW))
    assert any(path.parts[:3] == ("checkpoint", "weever", "rejects") for path in holding(folder, ROW))
    # Spark's event log tells why tasks failed, with what a library's exception quotes: see docs/security.md.
    for path in holding(folder, ROW):
        assert path.parts[0] in ("feed", "tables", "checkpoint", "events", "out.txt", "err.txt"), path
    for stream, meant in ((told, "violations"), (errors, "failing sink, debugged")):
        scenes = dict(part.partition("\n")[::2] for part in stream.split("@@scene ")[1:])
        assert len(scenes) == len(SCENES)
        assert [name for name, text in scenes.items() if ROW in text and name != meant] == []
    assert ROW in told

    # A rule's name is no path.
    assert RULE in told
    assert {path.name for path in folder.parent.iterdir()} == {"job"}
    assert {path.name for path in (folder / "tables").iterdir()} == {"log", "open"}
