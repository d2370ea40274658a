"""Where connector jars come from, in which order, and what is said when they cannot be had. Maven is a script here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from weever_stream.errors import EngineError
from weever_stream.stream.jars import cache_folder, connectors, fetched, maven_coordinates, wanted
from weever_stream.stream.java import java

MAVEN = """#!{python}
import re, sys, zipfile, pathlib
pom = pathlib.Path(sys.argv[sys.argv.index("-f") + 1]).read_text()
target = next(pathlib.Path(word.split("=", 1)[1]) for word in sys.argv if word.startswith("-DoutputDirectory="))
with open({calls!r}, "a") as calls:
    calls.write("call\\n")
jars = re.findall("<artifactId>([^*<]+)</artifactId><version>([^<]+)</version><exclusions>", pom)
for artifact, number in jars:
    if f"{{artifact}}:{{number}}" in {missing!r}:
        print(f"[ERROR] Could not find artifact {{artifact}}:jar:{{number}} in central")
        sys.exit(1)
target.mkdir()
for artifact, number in jars:
    zipfile.ZipFile(target / f"{{artifact}}-{{number}}.jar", "w").writestr("a", "a")
"""


class Machine:
    """A machine with a cache of its own and a PATH that holds only what a test puts there."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.programs, self.calls = folder / "bin", folder / "calls"
        self.programs.mkdir()
        for name in ("WEEVER_JARS", "SPARK_HOME", "JAVA_HOME"):
            patch.delenv(name, raising=False)
        patch.setenv("PATH", str(self.programs))
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))

    def program(self, name: str, text: str) -> Path:
        path = self.programs / name
        path.write_text(text)
        path.chmod(0o755)
        return path

    def maven(self, *missing: str) -> None:
        self.program("mvn", MAVEN.format(python=sys.executable, calls=str(self.calls), missing=missing))

    @property
    def maven_calls(self) -> int:
        return len(self.calls.read_text().splitlines()) if self.calls.exists() else 0


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    return Machine(tmp_path, monkeypatch)


def put(folder: Path, *names: str) -> Path:
    folder.mkdir(parents=True)
    for name in names:
        with ZipFile(folder / name, "w") as jar:
            jar.writestr("a", "a")
    return folder


def test_nothing_is_needed_for_nothing(machine: Machine) -> None:
    assert connectors().settings() == {}


def test_a_folder_comes_first_and_the_argument_before_the_environment(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.maven()
    one, two = (put(tmp_path / name, "delta-spark_4.2_2.13-4.4.0.jar", "other.jar") for name in ("one", "two"))
    monkeypatch.setenv("WEEVER_JARS", str(one))
    assert connectors("delta").paths == tuple(sorted(one.iterdir()))
    assert connectors("delta", folder=two).paths == tuple(sorted(two.iterdir()))
    assert connectors("delta").origin == "folder"
    assert machine.maven_calls == 0


def test_a_folder_without_the_connector_is_refused_and_told_what_it_lacks(machine: Machine, tmp_path: Path) -> None:
    folder = put(tmp_path / "one", "delta-spark_4.2_2.13-4.4.0.jar")
    with pytest.raises(EngineError, match=r"holds no spark-sql-kafka-0-10_\*\.jar") as told:
        connectors("delta", "kafka", folder=folder)
    assert "kafka-clients-" in str(told.value.hint)
    with pytest.raises(EngineError, match="is not there"):
        connectors("delta", folder=tmp_path / "none")


def test_what_spark_has_is_not_fetched(machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path / "spark" / "jars", "delta-spark_4.2_2.13-4.4.0.jar")
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    machine.maven()
    assert (connectors("delta").settings(), connectors("delta").origin) == ({}, "spark")
    assert {path.parent for path in connectors("delta", "kafka").paths} == {cache_folder("kafka")}


def test_maven_is_asked_once_and_then_the_cache(machine: Machine) -> None:
    machine.maven()
    first = connectors("delta", "kafka")
    assert first.origin == "maven"
    assert [path.name for path in first.paths] == [
        "{1}-{2}.jar".format(*one.split(":")) for kind in ("delta", "kafka") for one in wanted(kind)[0]
    ]
    second = connectors("delta", "kafka")
    assert (second.origin, second.paths, machine.maven_calls) == ("cache", first.paths, 2)
    assert sorted(path.name for path in cache_folder("delta").parent.iterdir()) == sorted(
        cache_folder(kind).name for kind in ("delta", "kafka")
    ), "nothing half-made is left"


def test_versions_that_a_mirror_lacks_have_a_substitute(machine: Machine) -> None:
    best, substitute = (choice[1].split(":", 1)[1] for choice in wanted("kafka"))
    machine.maven(best)
    names = {path.name for path in connectors("kafka").paths}
    assert substitute.replace(":", "-") + ".jar" in names
    assert (connectors("kafka").origin, machine.maven_calls) == ("cache", 2)


def test_what_maven_cannot_find_is_named_with_what_to_do(machine: Machine) -> None:
    machine.maven(wanted("kafka")[0][2].split(":", 1)[1])
    with pytest.raises(EngineError, match="Could not find artifact kafka-clients:jar:") as told:
        connectors("kafka")
    assert "WEEVER_JARS" in str(told.value.hint)
    assert list(cache_folder("kafka").parent.iterdir()) == []


def test_a_damaged_jar_is_fetched_again(machine: Machine) -> None:
    machine.maven()
    jar = connectors("kafka").paths[0]
    jar.write_bytes(jar.read_bytes()[:20])
    assert fetched("kafka") is None
    assert connectors("kafka").origin == "maven"
    assert fetched("kafka") is not None


def test_a_cache_that_cannot_be_written_is_told(
    machine: Machine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.maven()
    (tmp_path / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(EngineError, match=r"cannot be kept in .*: Not a directory"):
        connectors("kafka")


def test_without_folder_cache_and_maven_spark_fetches_them_itself(machine: Machine) -> None:
    found = connectors("delta", "kafka")
    assert (found.paths, found.packages) == ((), maven_coordinates())
    assert found.settings() == {"spark.jars.packages": ",".join(maven_coordinates())}


def test_coordinates_follow_the_version_of_spark() -> None:
    delta, kafka = maven_coordinates("4.1.1")
    assert delta.startswith("io.delta:delta-spark_4.1_2.13:")
    assert kafka == "org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.1"
    assert "org.apache.commons:commons-pool2:2.12.1" in wanted("kafka", "4.1.1")[0]


def test_no_java_is_told_with_what_to_install(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(EngineError, match="JAVA_HOME is not set, no java in PATH") as told:
        java()
    assert "openjdk-17-jre-headless" in str(told.value.hint)
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    with pytest.raises(EngineError, match="/nowhere/bin/java, named by JAVA_HOME, does not run: No such file"):
        java()


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ('openjdk version "11.0.2" 2019-01-15', "Java 11.0.2 at .* is too old"),
        ('java version "1.8.0_392"', "Java 1.8.0_392 at .* is too old"),
        ("hello", "is not Java: it tells no version"),
    ],
)
def test_a_java_that_does_not_fit_is_told(machine: Machine, said: str, told: str) -> None:
    machine.program("java", f"#!/bin/sh\necho '{said}' >&2\n")
    with pytest.raises(EngineError, match=told):
        java()


@pytest.mark.parametrize("said", ["17.0.15", "21", "25-ea"])
def test_a_java_that_fits_is_named(machine: Machine, said: str) -> None:
    program = machine.program("java", f"#!/bin/sh\necho 'openjdk version \"{said}\" 2025-04-15' >&2\n")
    assert (java().version, java().program, java().named_by) == (said, program, "PATH")


def test_a_session_without_java_fails_with_that_word_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/nowhere")
    program = "from weever_stream.stream.session import session\nsession(['delta'])"
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=root, timeout=60)
    assert done.stderr.splitlines()[-2].startswith("weever_stream.errors.EngineError: Java at /nowhere/bin/java")
    assert "hint: install Java 17" in done.stderr
