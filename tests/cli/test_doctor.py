"""`weever doctor`: what it finds, what it says of what is missing, and how it ends."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from weever_stream.cli import run
from weever_stream.cli.doctor import Finding, _print
from weever_stream.stream.jars import cache_folder

JOB = """\
table: packages
key: id
source: {kind: kafka, servers: "localhost:9092", topic: packages}
state: {checkpoint: state}
sinks: [{kind: console}]
rules:
  - {name: zip_city, fd: zip -> city}
"""


@pytest.fixture(autouse=True)
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Java that says it is one, no Maven, an empty cache."""
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "java").write_text("#!/bin/sh\necho 'openjdk version \"21.0.1\" 2023-10-17' >&2\n")
    (programs / "java").chmod(0o755)
    for name in ("WEEVER_JARS", "SPARK_HOME", "JAVA_HOME", "WEEVER_DOCTOR_FORMAT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("COLUMNS", "160")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.yaml").write_text(JOB)


def findings(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, bool, dict[str, Any]]:
    code = run(["doctor", "--format", "json", *arguments])
    outcome = json.loads(capfd.readouterr().out)
    assert outcome["version"] == 1
    return code, outcome["well"], {finding["name"]: finding for finding in outcome["findings"]}


def test_a_machine_that_is_well(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, well, found = findings(capfd)
    assert (code, well) == (0, True)
    assert found["Java"]["found"] == f"21.0.1 at {tmp_path / 'bin' / 'java'}, named by PATH"
    assert found["connector kafka"]["found"].startswith("not fetched yet, and no Maven; Spark will fetch org.apache")
    assert list(found) == [
        "Python",
        "Java",
        "pyspark",
        "pandas",
        "pyarrow",
        "delta-spark",
        "connector delta",
        "connector kafka",
        "kernels",
        "cache",
    ]
    assert all(finding["hint"] is None for finding in found.values())


def test_no_java_is_one_thing_to_mend(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    assert run(["doctor"]) == 3
    shown = capfd.readouterr().out
    assert "bad  Java             Java at /nowhere/bin/java, named by JAVA_HOME, does not run: No such file" in shown
    assert "hint: install Java 17 or newer" in shown
    assert shown.rstrip().endswith("1 thing to fix")


def test_a_path_is_never_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.StringIO()
    terminal = Console(file=out, width=40, highlight=False, soft_wrap=True)
    monkeypatch.setattr("weever_stream.cli.tables.open_console", lambda: terminal)
    path = "/folder/[prod]" * 10
    _print([Finding("cache", False, f"at {path}\nand more", f"see {path}")])
    assert out.getvalue().splitlines() == [
        f"bad  cache  at {path}",
        "            and more",
        f"            hint: see {path}",
        "1 thing to fix",
    ]


def test_a_job_is_looked_at_for_what_it_needs(capfd: pytest.CaptureFixture[str]) -> None:
    code, _, found = findings(capfd, "job.yaml")
    assert code == 0
    assert found["job"]["found"] == "job.yaml needs kafka"
    assert "connector kafka" in found
    assert not {"connector delta", "delta-spark"} & set(found)


def test_a_job_that_cannot_be_read_is_told_with_its_place(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(JOB.replace("topic", "topik"))
    code, _, found = findings(capfd, "job.yaml")
    assert code == 3
    assert "job.yaml:3:" in found["job"]["found"]
    assert run(["doctor", "job.yaml"]) == 3
    assert "did you mean topic?" in capfd.readouterr().out


def test_maven_will_fetch_and_then_the_cache_has_it(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    from zipfile import ZipFile

    from weever_stream.stream.jars import wanted

    (tmp_path / "bin" / "mvn").write_text("#!/bin/sh\n")
    (tmp_path / "bin" / "mvn").chmod(0o755)
    assert f"Maven at {tmp_path / 'bin' / 'mvn'} will" in findings(capfd)[2]["connector kafka"]["found"]
    cache_folder("kafka").mkdir(parents=True)
    for coordinate in wanted("kafka")[1]:
        with ZipFile(cache_folder("kafka") / "{1}-{2}.jar".format(*coordinate.split(":")), "w") as jar:
            jar.writestr("a", "a")
    assert findings(capfd)[2]["connector kafka"]["found"].startswith("cached, spark-sql-kafka-0-10_")


def test_a_named_folder_must_hold_the_connectors(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEEVER_JARS", str(tmp_path))
    (tmp_path / "delta-spark_4.2_2.13-4.4.0.jar").touch()
    code, _, found = findings(capfd)
    assert code == 3
    assert found["connector delta"]["found"].startswith("delta-spark_4.2_2.13-4.4.0.jar in ")
    assert not found["connector kafka"]["well"]
    assert "spark-sql-kafka-0-10_" in found["connector kafka"]["hint"]


def test_little_room_is_told(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    import shutil

    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(2**40, 2**40, 2**20))
    code, _, found = findings(capfd)
    assert (code, found["cache"]["hint"]) == (3, "make room, or set XDG_CACHE_HOME to another folder")


def test_a_session_that_does_not_start_is_told(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from weever_stream.errors import EngineError
    from weever_stream.stream import session

    def refused(*_: object, **__: object) -> None:
        raise EngineError("Spark did not start: no", hint="do this")

    monkeypatch.setattr(session, "session", refused)
    code, _, found = findings(capfd, "--start")
    assert (code, found["session"]["hint"]) == (3, "do this")
