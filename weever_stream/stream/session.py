"""The Spark session of a job: the one that runs already, or a new one with what streaming on a small machine needs.

Whatever a user has set, by `spark-submit`, in spark-defaults.conf or in `conf`, stays; the settings here fill the gaps.
The session's time zone is left alone too: instants reach us exactly whichever it is. A start takes about 9 seconds on
two cores. What is given when the JVM is launched stands in the list of processes for all to see; so secrets, and
whatever Spark itself would hide, are set after it, but for settings that only a launch can take (`spark.driver.*`).
"""

from __future__ import annotations

import json
import os
import re
import sys
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING, Any

from weever_stream.errors import EngineError
from weever_stream.job.job import SPARK_HIDES
from weever_stream.observe import logs
from weever_stream.rules.references import Secret
from weever_stream.stream import jvm
from weever_stream.stream.jars import KINDS, MAIN, Jars, connectors, maven_coordinates
from weever_stream.stream.java import java

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import SparkSession

    from weever_stream.job.job import Job
    from weever_stream.stream.jars import Kind

__all__ = ["session", "session_of"]

_STATE = {
    # State on disk instead of in Java's heap, and a batch uploads what it changed instead of a whole snapshot.
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    ),
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    # stop() waits for the running batch without end by default, and with it Ctrl-C.
    "spark.sql.streaming.stopTimeout": "60s",
}
"""For every session, also one that we did not start."""
_OURS = _STATE | {
    # Rows come to Python in frames of up to this many: fewer frames, fewer calls. A frame grows by doubling, outside of
    # Java's heap and within it: less than Spark's 64 MB.
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(16 << 20),
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    # Adaptive plans are not for stateful queries: Spark turns them off there, with a warning at each start. They cut a
    # small MERGE into more jobs (six of them 38 s of CPU instead of 34).
    "spark.sql.adaptive.enabled": "false",
    # A job runs in a terminal or a container: no web server.
    "spark.ui.enabled": "false",
    # Python workers are forked with the engine loaded: 3 CPU seconds less for a job's first batch, on two cores.
    "spark.python.daemon.module": "weever_stream.stream.daemon",
    # A crash in compiled code shows the line of Python that it came from.
    "spark.python.worker.faulthandler.enabled": "true",
}
_AT_LAUNCH = {
    # Spark looks for the reason of a stop with a regular expression: a long Python traceback needs a deep stack.
    "spark.driver.extraJavaOptions": "-Xss4m",
    # No progress bar between the job's own lines. A JVM that Python starts turns it on, so this cannot come later.
    "spark.ui.showConsoleProgress": "false",
}
_DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}
_CLASSES = {
    "delta": "io.delta.sql.DeltaSparkSessionExtension",
    "kafka": "org.apache.spark.sql.kafka010.KafkaSourceProvider",
}
_NOBODY_SAID = "local[*]"
"""The master that Spark takes when it is told none."""
_LOCAL = "local[*,4]"
"""The same, but a task whose Python worker dies is tried again; Spark's default fails the query."""
_ONLY_AT_LAUNCH = ("spark.driver.", "spark.jars", "spark.master", "spark.submit.", "spark.files", "spark.archives")
"""How names of settings begin that spark-submit acts on before Python can say anything."""
_NAMELESS = "pyspark-shell"
"""The name that Spark gives to an application without one."""


def session(
    kinds: Iterable[str],
    *,
    master: str | None = None,
    conf: Mapping[str, str | Secret] = {},
    app: str = "weever",
    rules: int = 0,
    log: Path | None = None,
) -> SparkSession:
    """A session that can read and write these kinds of sources and sinks; `files` and `console` need nothing.

    `rules`: how many the job has; they count for the heap. `log`: a local file for Java's stack traces; a temporary one
    if none is given. Reuses the session that is running, if there is one: then nothing but `kinds` is used. Raises
    `EngineError` where Java or a connector is missing.
    """
    asked = set(kinds)
    needed = [kind for kind in KINDS if kind in asked]
    running = _running()
    if running is None:
        running = _started(needed, {**conf, **({"spark.master": master} if master else {})}, app, rules, log)
    else:
        _fill_gaps(running, _STATE)
    _require_connectors(running, needed)
    return running


def session_of(job: Job, *, log: Path | None, master: str | None = None, app: str | None = None) -> SparkSession:
    """The session of a job. `log`: that of the checkpoint whose lease is taken; None where another may be using it."""
    name, rules = app or f"weever {job.file.table}", len(job.file.rules)
    return session(job.connectors, master=master, conf=job.settings, app=name, rules=rules, log=log)


def _running() -> SparkSession | None:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

    if SparkContext._active_spark_context is None:
        return None
    # Not the active session: where a sink made a frame, that is the copy that Spark made of the session for its query.
    return SparkSession.builder.getOrCreate()


def _started(
    needed: Sequence[Kind], given: Mapping[str, str | Secret], app: str, rules: int, log: Path | None
) -> SparkSession:
    from pyspark import SparkConf
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    java()
    conf = {name: value.reveal() if isinstance(value, Secret) else value for name, value in given.items()}
    open_to_all = {name: conf[name] for name, value in given.items() if _may_be_seen(name, value)}
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    jars = Jars() if _submitted() else connectors(*_unnamed(needed, conf))
    launch = SparkConf(loadDefaults=False)
    ours = {name: value for name, value in _AT_LAUNCH.items() if name not in jvm.defaults(os.environ)}
    ours |= jvm.heap_setting(conf, os.environ, rules)
    for name, value in {**ours, **open_to_all, **_with_jars(jars, conf)}.items():
        launch.set(name, value)
    messages = jvm.log_file() or jvm.new_log(log)  # a JVM that was launched before keeps its log
    try:
        # The JVM first: only it can tell what spark-submit and spark-defaults.conf have set.
        with _jvm_options(messages):
            jvm.launch(launch, messages)
        asked = conf | dict(launch.getAll())
        told = dict(SparkConf().getAll()) | asked
        named = told.get("spark.app.name", _NAMELESS)
        builder = SparkSession.builder.appName(app if named == _NAMELESS else named)
        for name, value in (_defaults(needed, told) | asked).items():
            builder = builder.config(name, value)
        return builder.getOrCreate()
    except PySparkException as error:
        raise _not_started(jars, str(error), messages) from None


def _may_be_seen(name: str, value: str | Secret) -> bool:
    """Whether a setting may stand on a command line, or has to."""
    hidden = isinstance(value, Secret) or re.search(SPARK_HIDES, f"{name}={value}") is not None
    return name.startswith(_ONLY_AT_LAUNCH) or not hidden


def _submitted() -> bool:
    """Whether spark-submit started us: then the JVM is there already, with the jars that it was given."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def _unnamed(needed: Sequence[Kind], conf: Mapping[str, str]) -> list[Kind]:
    """The connectors whose jars the user has not named himself."""
    places = (conf.get("spark.jars"), conf.get("spark.jars.packages"), os.environ.get("PYSPARK_SUBMIT_ARGS"))
    return [kind for kind in needed if not any(place and MAIN[kind] in place for place in places)]


def _with_jars(jars: Jars, conf: Mapping[str, str]) -> dict[str, str]:
    return {name: ",".join(filter(None, (conf.get(name), ours))) for name, ours in jars.settings().items()}


def _defaults(needed: Sequence[Kind], told: Mapping[str, str]) -> dict[str, str]:
    """What nobody has set."""
    ours = dict(_OURS)
    master = told.get("spark.master", _NOBODY_SAID)
    if master.startswith("local"):
        ours |= _for_this_machine()
    if "delta" in needed:
        ours |= _DELTA
    ours = {name: value for name, value in ours.items() if name not in told}
    if master == _NOBODY_SAID:
        ours["spark.master"] = _LOCAL
    if "delta" in needed and (extensions := told.get("spark.sql.extensions")) and _CLASSES["delta"] not in extensions:
        ours["spark.sql.extensions"] = f"{extensions},{_CLASSES['delta']}"
    return ours


def _for_this_machine() -> dict[str, str]:
    cores = str(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 2)
    return {
        # Each partition of a stateful query costs some 0.1 s a batch even if it is empty; 200 is Spark's default. A
        # query keeps the number that it was first started with.
        "spark.sql.shuffle.partitions": cores,
        # Delta reads a table's log in 50 tasks by default: six small MERGEs took 96 s of CPU instead of 34.
        "spark.databricks.delta.snapshotPartitions": cores,
        # Spark makes this folder wherever it is started, though nothing is kept in it.
        "spark.sql.warehouse.dir": str(Path(gettempdir()) / "weever-warehouse"),
        # Nobody else needs to reach a local Spark, and it must not depend on how the host's name resolves.
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }


@contextmanager
def _jvm_options(log: Path) -> Iterator[None]:
    """Options of the JVM that is started inside. It logs as our log4j2.properties says, unless somebody says how."""
    options = os.environ.get("SPARK_SUBMIT_OPTS")
    ours = list(jvm.OPTIONS)
    if not _has_log_settings(options or ""):
        name = "log4j2-json.properties" if logs.as_json() else "log4j2.properties"
        settings = Path(str(files(__package__).joinpath(name))).as_uri()
        ours += [f"-Dlog4j2.configurationFile={settings}", f"-Dweever.log={log}"]
    # Spark's launcher cuts them at blanks, unless they are quoted.
    quoted = " ".join(json.dumps(option, ensure_ascii=False) if " " in option else option for option in ours)
    os.environ["SPARK_SUBMIT_OPTS"] = f"{quoted} {options}" if options else quoted
    try:
        yield
    finally:
        if options is None:
            del os.environ["SPARK_SUBMIT_OPTS"]
        else:
            os.environ["SPARK_SUBMIT_OPTS"] = options


def _has_log_settings(options: str) -> bool:
    home = os.environ.get("SPARK_HOME")
    folder = os.environ.get("SPARK_CONF_DIR") or (home and str(Path(home, "conf")))
    return "log4j" in options or bool(folder and any(Path(folder).glob("log4j2.*")))


def _fill_gaps(running: SparkSession, settings: Mapping[str, str]) -> None:
    for name, value in settings.items():
        if running.conf.get(name, None) is None:
            running.conf.set(name, value)


def _require_connectors(running: SparkSession, needed: Sequence[Kind]) -> None:
    """A clear word now instead of Spark's `Failed to find the data source` when the query starts."""
    java_side: Any = getattr(running, "_jvm", None)
    if java_side is None:  # Spark Connect: the server's class path is the server's business
        return
    for kind in needed:
        if not java_side.org.apache.spark.util.Utils.classIsLoadable(_CLASSES[kind]):
            raise EngineError(
                f"the running Spark has no connector for {kind}",
                hint="a running JVM takes no new jars: start a new process; "
                f"or: spark-submit --packages {','.join(maven_coordinates(running.version))}",
            )
    if "delta" in needed and _CLASSES["delta"] not in (running.conf.get("spark.sql.extensions", None) or ""):
        wanted = " ".join(f"--conf {name}={value}" for name, value in _DELTA.items())
        raise EngineError("the running Spark session is not set up for Delta", hint=f"start it with {wanted}")


def _not_started(jars: Jars, reason: str, log: Path) -> EngineError:
    where = f"its messages are above and in {log}"
    if jars.packages:
        return EngineError(
            f"Spark did not start; it was to fetch {', '.join(jars.packages)}",
            hint=f"{where}. Install Maven, or put these jars, with what they need, in a folder and name it in "
            "WEEVER_JARS",
        )
    return EngineError(f"Spark did not start: {reason.splitlines()[0]}", hint=f"{where}; try weever doctor")
