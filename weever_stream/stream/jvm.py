"""The JVM that Spark runs in: how much heap it gets, where its own output goes, and why it ended.

The heap is a quarter of the memory of the machine or container, up to 4 GiB, and more for hundreds of rules; Python
workers need the rest. Whoever sets it (`spark.driver.memory` in the job file or in spark-defaults.conf,
`--driver-memory`, SPARK_DRIVER_MEMORY, -Xmx) has the last word. A JVM that runs out of heap ends at once: one that goes
on with threads missing hangs, or fails later with another error.

What the JVM prints on standard error passes through here. Lines for people go on to the terminal; stack traces go to a
log file only, together with those that log4j and py4j write. The file may quote rows, so only its owner can read it.
"""

from __future__ import annotations

import atexit
import logging
import os
import re
import signal
import sys
import threading
import traceback
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import mkdtemp
from typing import TYPE_CHECKING, Any

from weever_stream.discover.budget import machine_memory
from weever_stream.errors import EngineError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from pyspark import SparkConf

__all__ = [
    "OPTIONS",
    "Jvm",
    "Pump",
    "heap_for",
    "heap_setting",
    "launch",
    "log_file",
    "log_libraries",
    "log_trace",
    "running",
]

_GIB = 1 << 30
_LARGEST, _BYTES_A_RULE = 4 * _GIB, 4 << 20
OPTIONS = (
    "-XX:+ExitOnOutOfMemoryError",
    # What the JVM itself prints would otherwise come between lines of ours on standard output.
    "-XX:+DisplayVMOutputToStderr",
)
_INCUBATOR = "WARNING: Using incubator modules: "
"""What Java prints at every start because Spark's launcher asks for jdk.incubator.vector."""
_TRACE = re.compile(
    r"\s|Caused by: |Exception in thread |Traceback \(most recent call last\)"
    r"|(?:[a-z]\w{0,60}\.){1,12}[A-Z]\w{0,100}(?:Error|Exception)\b"
)
"""How lines of stack traces begin."""
_LOGGED = re.compile(r"\d\d:\d\d:\d\d [A-Z]+ |\{")
"""Lines of our log4j2.properties, which writes them to the log itself."""
_OUT_OF_MEMORY = re.compile(r"OutOfMemoryError: ([\w ]{1,60})|OutOfMemoryError")
_KEPT = 50
_SECONDS_TO_END = 5.0
_GIVE = "raise `spark.driver.memory` under `spark:` in the job file, or make batches smaller by `source.options`"
_AGAIN = "then start the job again: it goes on"
_running: list[Jvm] = []
"""The JVM that this process has launched, if it has."""


def heap_for(memory: int, rules: int = 0) -> int:
    """The heap of a JVM on a machine with so much memory, for a job with so many rules; in bytes."""
    wanted = max(_GIB + rules * _BYTES_A_RULE, min(memory // 4, _LARGEST))
    return min(wanted, memory // 2)


def heap_setting(conf: Mapping[str, str], environ: Mapping[str, str], rules: int = 0) -> dict[str, str]:
    """`spark.driver.memory`, unless somebody has set it."""
    arguments = " ".join(environ.get(name, "") for name in ("PYSPARK_SUBMIT_ARGS", "SPARK_SUBMIT_OPTS"))
    java = " ".join(environ.get(name, "") for name in ("JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"))
    is_set = (
        "spark.driver.memory" in conf
        or "SPARK_DRIVER_MEMORY" in environ
        or re.search(r"--driver-memory|spark\.driver\.memory=|-Xmx", f"{arguments} {java}")
        or "spark.driver.memory" in defaults(environ)
    )
    return {} if is_set else {"spark.driver.memory": f"{heap_for(machine_memory(), rules) >> 20}m"}


def defaults(environ: Mapping[str, str]) -> frozenset[str]:
    """The names of the settings in spark-defaults.conf."""
    home = environ.get("SPARK_HOME")
    folder = environ.get("SPARK_CONF_DIR") or (home and str(Path(home, "conf")))
    try:
        lines = Path(folder, "spark-defaults.conf").read_text(encoding="utf-8").splitlines() if folder else []
    except (OSError, ValueError):
        return frozenset()
    return frozenset(re.split(r"[\s=:]", line.strip(), maxsplit=1)[0] for line in lines if line.strip()[:1] not in "#!")


@dataclass
class Pump:
    """Passes on what a JVM prints: all of it to the log, lines for people to the terminal. Keeps the last lines."""

    log: Path
    last: list[str] = field(default_factory=list)

    def take(self, lines: Iterable[bytes]) -> None:
        """Reads to the end."""
        for line in lines:
            text = line.decode("utf-8", "replace").rstrip("\r\n")
            if text.startswith(_INCUBATOR):
                continue
            self.last = [*self.last[1 - _KEPT :], text]
            if not _LOGGED.match(text):
                self.write(text)
            if text and not _TRACE.match(text):
                with suppress(OSError, ValueError, AttributeError):
                    print(text, file=sys.stderr, flush=True)

    def write(self, text: str) -> None:
        """Writes to the log, which is opened each time: log4j moves the file away when it is large."""
        with suppress(OSError), self.log.open("a", encoding="utf-8", errors="replace") as file:
            file.write(f"{text}\n")


@dataclass
class Jvm:
    """The JVM that this process has launched."""

    process: Any
    pump: Pump
    thread: threading.Thread
    heap: int | None = None
    """Bytes, as Java says."""

    @property
    def alive(self) -> bool:
        """Whether it runs."""
        return self.process is None or self.process.poll() is None

    def ended(self) -> EngineError:
        """Why it ended, and what to do."""
        code = None
        with suppress(Exception):  # subprocess.TimeoutExpired: it has not ended, and only its connection is lost
            code = self.process.wait(_SECONDS_TO_END)
        self.thread.join(_SECONDS_TO_END)
        where = f"its messages are in {self.pump.log}"
        heap = f" of {self.heap >> 20} MiB" if self.heap else ""
        for line in reversed(self.pump.last):
            if found := _OUT_OF_MEMORY.search(line):
                what = (found[1] or "Java heap space").strip()
                return EngineError(
                    f"Spark's JVM ran out of memory ({what}): its heap{heap} is too small for the batch",
                    hint=f"{_GIVE}; {_AGAIN}. {where}",
                )
        if code in (-9, 137):
            memory = f"{machine_memory() >> 20} MiB"
            return EngineError(
                "Spark's JVM was killed (SIGKILL), most likely because the memory of the machine or container ran out",
                hint=f"there are {memory} for Java (a heap{heap}) and Python together: give it more, or make batches "
                f"smaller by `source.options`; {_AGAIN}. {where}",
            )
        ending = "" if code is None else f" (exit code {code})"
        return EngineError(f"Spark's JVM has ended{ending}, or was ended by the system", hint=f"{where}; {_AGAIN}")


def running() -> Jvm | None:
    """The JVM that this process has launched."""
    return _running[-1] if _running else None


def log_file() -> Path | None:
    """Where the messages of the running JVM are."""
    return None if not _running else _running[-1].pump.log


def log_trace(error: BaseException) -> None:
    """Writes all of an error to the log."""
    if _running:
        _running[-1].pump.write("".join(traceback.format_exception(error)))


def new_log(path: Path | None) -> Path:
    """An empty log that only its owner can read; the one before it is kept beside it."""
    try:
        if path is None:
            path = Path(mkdtemp(prefix="weever-spark-")) / "spark.log"
            atexit.register(_remove_if_empty, path)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        with suppress(FileNotFoundError):
            path.replace(path.with_name(f"{path.name}.1"))
        path.touch(mode=0o600)
    except OSError as error:
        raise EngineError(
            f"the log of Spark {path} cannot be written: {error.strerror or type(error).__name__}",
            hint="check the rights and the space there",
        ) from None
    return path


def _remove_if_empty(path: Path) -> None:
    with suppress(OSError):
        if not path.stat().st_size:
            path.unlink()
            path.parent.rmdir()


def launch(conf: SparkConf, log: Path) -> None:
    """Launches the JVM for this process, with its standard error through a pump."""
    from pyspark import SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None or "PYSPARK_GATEWAY_PORT" in os.environ:
        SparkContext._ensure_initialized(conf=conf)
        return
    pump = Pump(log)
    reading, writing = os.pipe()
    thread = threading.Thread(target=_read, args=(reading, pump), name="weever-jvm", daemon=True)
    thread.start()
    with _deferred_signals():
        try:
            gateway: Any = launch_gateway(conf, _DeafToSigterm(stderr=writing))  # type: ignore[no-untyped-call]
        finally:
            os.close(writing)  # the JVM has its own
        SparkContext._ensure_initialized(gateway=gateway)
        heap = int(gateway.jvm.java.lang.Runtime.getRuntime().maxMemory())
        _running.append(Jvm(gateway.proc, pump, thread, heap))


@contextmanager
def _deferred_signals() -> Iterator[None]:
    """Within the block SIGTERM and Ctrl-C wait for its end; a second Ctrl-C does not. `timeout` sends SIGTERM twice.

    A launch that is cut off leaves a JVM that nobody knows, and that does not notice when this process ends: it does so
    only once the two are connected.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pending: list[int] = []

    def defer(number: int, _: object) -> None:
        if number not in pending:
            pending.append(number)
        elif number == signal.SIGINT:
            raise KeyboardInterrupt

    heeded = [one for one in (signal.SIGTERM, signal.SIGINT) if signal.getsignal(one) is not signal.SIG_IGN]
    before = {number: signal.signal(number, defer) for number in heeded}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    for asked in pending:
        signal.raise_signal(asked)


class _DeafToSigterm(dict[str, Any]):
    """How the JVM is launched: so that it ignores SIGTERM, as PySpark makes it ignore Ctrl-C.

    `timeout`, systemd and shells send the signal to every process of a job at once. Python is the one to answer: it
    lets the current batch finish and then stops the JVM, which would otherwise end in the middle of it. A JVM whose
    Python has died ends by itself. PySpark sets `preexec_fn` itself, so this is the place to add to it.
    """

    def __setitem__(self, name: str, value: Any) -> None:
        def prepare() -> None:
            value()
            signal.signal(signal.SIGTERM, signal.SIG_IGN)

        super().__setitem__(name, prepare if name == "preexec_fn" else value)


def _read(descriptor: int, pump: Pump) -> None:
    with os.fdopen(descriptor, "rb") as lines:
        pump.take(lines)


def log_libraries() -> None:
    """What libraries log goes to the log of Spark from now on, for a process that is ours: Python would print it.

    When a JVM ends, PySpark and py4j log traces of all threads that talk to it.
    """
    from pyspark import accumulators

    log, root = log_file(), logging.getLogger()
    if log is None or root.handlers:
        return
    handler = logging.FileHandler(log, encoding="utf-8", errors="replace", delay=True)
    handler.setLevel(logging.WARNING)
    root.addHandler(handler)
    for name in ("AccumulatorTCPServer", "AccumulatorUnixServer"):
        server = getattr(accumulators, name, None)
        if server is not None:
            server.handle_error = lambda *_: logging.getLogger("pyspark").exception("a connection to Java has ended")
