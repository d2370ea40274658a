"""The JVM's heap, output and end, without Spark. Catches: a heap that ignores the machine, the container, the job or the
user; traces on the terminal; warnings that nobody sees; an end that nobody can explain.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from weever_stream.discover import budget
from weever_stream.stream.jvm import Jvm, Pump, heap_for, heap_setting, new_log

MIB, GIB = 1 << 20, 1 << 30


@pytest.mark.parametrize(
    ("memory", "rules", "heap"),
    [
        (GIB, 5, GIB // 2),
        (2 * GIB, 5, GIB),
        (8 * GIB, 5, 2 * GIB),
        (16 * GIB, 5, 4 * GIB),
        (256 * GIB, 5, 4 * GIB),
        (8 * GIB, 200, 2 * GIB),
        (8 * GIB, 1000, 4 * GIB),
        (64 * GIB, 1000, GIB + 4000 * MIB),
    ],
)
def test_the_heap_follows_machine_and_job(memory: int, rules: int, heap: int):
    assert heap_for(memory, rules) == heap


def test_the_limit_of_a_container_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "memory.max").write_text(f"{2 * GIB}\n")
    monkeypatch.setattr(budget, "_CGROUPS", tmp_path)
    assert heap_setting({}, {}) == {"spark.driver.memory": "1024m"}


def test_who_sets_the_heap_has_the_last_word(tmp_path: Path):
    (tmp_path / "spark-defaults.conf").write_text("# ours\nspark.driver.memory  3g\n")
    for conf, environ in (
        ({"spark.driver.memory": "3g"}, {}),
        ({}, {"SPARK_DRIVER_MEMORY": "3g"}),
        ({}, {"PYSPARK_SUBMIT_ARGS": "--driver-memory 3g pyspark-shell"}),
        ({}, {"PYSPARK_SUBMIT_ARGS": "--conf spark.driver.memory=3g pyspark-shell"}),
        ({}, {"SPARK_SUBMIT_OPTS": "-Xmx3g"}),
        ({}, {"JAVA_TOOL_OPTIONS": "-Xmx3g"}),
        ({}, {"SPARK_CONF_DIR": str(tmp_path)}),
    ):
        assert heap_setting(conf, environ) == {}, (conf, environ)
    (tmp_path / "spark-defaults.conf").write_text("# spark.driver.memory 3g\n\nspark.ui.enabled=false\n")
    assert heap_setting({}, {"SPARK_CONF_DIR": str(tmp_path)})


PRINTED = b"""WARNING: Using incubator modules: jdk.incubator.vector
OpenJDK 64-Bit Server VM warning: something to know
12:00:01 ERROR Executor: Exception in task 0.0
Exception in thread "main" java.lang.OutOfMemoryError: Java heap space
\tat java.base/java.util.Arrays.copyOf(Arrays.java:3537)
Caused by: org.apache.spark.SparkException: the row PRIVATE
\t... 12 more
java.lang.OutOfMemoryError: Java heap space

Terminating due to java.lang.OutOfMemoryError: Java heap space
"""


def test_traces_go_to_the_log_and_warnings_to_the_terminal(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    pump = Pump(new_log(tmp_path / "logs" / "spark.log"))
    pump.take(PRINTED.splitlines(keepends=True))
    assert capfd.readouterr().err.splitlines() == [
        "OpenJDK 64-Bit Server VM warning: something to know",
        "12:00:01 ERROR Executor: Exception in task 0.0",
        "Terminating due to java.lang.OutOfMemoryError: Java heap space",
    ]
    logged = pump.log.read_text()
    assert "Arrays.copyOf" in logged
    assert "PRIVATE" in logged
    assert "incubator" not in logged
    assert (pump.log.stat().st_mode & 0o777, pump.log.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    assert new_log(pump.log).stat().st_size == 0
    assert pump.log.with_name("spark.log.1").read_text() == logged, "the log of the run before is kept"


@pytest.mark.parametrize(
    ("program", "printed", "said", "hint"),
    [
        ("raise SystemExit(3)", PRINTED, "ran out of memory (Java heap space): its heap of 1024 MiB", "spark.driver.memory"),
        ("import os; os.kill(os.getpid(), 9)", b"", "was killed (SIGKILL)", "MiB for Java (a heap of 1024 MiB)"),
        ("raise SystemExit(7)", b"", "has ended (exit code 7)", "its messages are in"),
    ],
)  # fmt: skip
def test_why_it_ended_is_said_with_the_setting(
    tmp_path: Path, program: str, printed: bytes, said: str, hint: str, capfd: pytest.CaptureFixture[str]
):
    pump = Pump(new_log(tmp_path / "spark.log"))
    thread = threading.Thread(target=pump.take, args=(printed.splitlines(),))
    thread.start()
    jvm = Jvm(subprocess.Popen([sys.executable, "-c", program]), pump, thread, GIB)
    error = jvm.ended()
    assert not jvm.alive
    assert said in error.message
    assert hint in str(error.hint)
    assert str(pump.log) in str(error.hint)


DEFERRED = """
import os, signal, sys
from weever_stream.stream.jvm import _deferred_signals
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
if {ignored}:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
with _deferred_signals():
    for one in {sent}:
        os.kill(os.getpid(), one)
    print("launched", flush=True)
print("went on", flush=True)
"""


@pytest.mark.parametrize(
    ("sent", "ignored", "code", "printed"),
    [
        ("[15]", False, 143, "launched\n"),
        ("[15, 15]", False, 143, "launched\n"),  # as `timeout` does
        ("[2]", False, -2, "launched\n"),
        ("[2, 2]", False, -2, ""),
        ("[2, 2]", True, 0, "launched\nwent on\n"),  # a job in the background of a script
    ],
)
def test_signals_wait_for_the_launch(sent: str, ignored: bool, code: int, printed: str):
    program = DEFERRED.format(sent=sent, ignored=ignored)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (code, printed)
