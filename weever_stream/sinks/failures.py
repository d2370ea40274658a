"""What a user is told when a sink cannot be written: which sink, and the reason without any row's values.

Spark's own message may quote rows (a CHECK constraint that somebody put on the table does) or options, so only the
error's name is passed on, Spark's or that of the innermost Java exception. The whole of it stays in the chain of causes
for those who read the driver's log.
"""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from weever_stream.errors import EngineError, OutputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["out_of_memory", "reason_of", "writing"]

_HINTS = {
    "not present in metadata": "the topic is missing and the brokers do not create it: docs/sinks.md shows how to",
    "TopicAuthorizationException": "the job may not write to this topic: check its ACLs",
    "SaslAuthenticationException": "the brokers refuse the user or password",
    "AccessControlException": "the job may not write there: check the rights",
    "AccessDeniedException": "the job may not write there: check the rights",
    "DELTA_CANNOT_CREATE_LOG_PATH": "its folder cannot be made: check the path, and that the job may write there",
    "Mkdirs failed": "its folder cannot be made: check the path, and that the job may write there",
    "Permission denied": "the job may not write there: check the rights",
    "No space left on device": "there is no space left; the batch is written again once there is",
}
"""What part of an error's text means. Only these texts are looked for; the text itself is not shown."""
_SMALLER = "or make batches smaller by `source.options`; then start again: the job goes on"
_MEMORY = {
    r"java\.lang\.OutOfMemoryError|GC overhead limit|Java heap space|SparkOutOfMemoryError|UNABLE_TO_ACQUIRE_MEMORY"
    r"|Unable to acquire \d{1,20} bytes of memory": (
        "Java ran out of memory: its heap is too small for the batch",
        "raise `spark.driver.memory` (on a cluster `spark.executor.memory`) under `spark:` in the job file, "
        f"{_SMALLER}",
    ),
    r"(?:ExecutorLostFailure|Lost executor).{0,600}?(?:OOM|137|[Kk]illed|memory limit)": (
        "an executor was killed, most likely because its memory ran out",
        "raise `spark.executor.memoryOverhead` (Python workers) or `spark.executor.memory` (Java) under `spark:` in "
        f"the job file, {_SMALLER}",
    ),
    r"\bMemoryError\b|Cannot allocate memory|failed to map segment|malloc of size": (
        "a Python worker ran out of memory",
        "raise `spark.executor.pyspark.memory` where it is set, else the memory of the machine or container, or use "
        f"more `state.shards`, {_SMALLER}",
    ),
    r"Python worker exited unexpectedly": (
        "a Python worker died again and again, most likely killed because memory ran out",
        "raise the memory of the machine or container, or `spark.executor.pyspark.memory` where it is set, or use more "
        f"`state.shards`, {_SMALLER}",
    ),
}
"""How texts of Spark say that memory ran out: whose it was, and what to set."""
_CONDITION = re.compile(r"(?:^|Exception: )\[([A-Z](?=[A-Z0-9]{0,99}_)[A-Z0-9_.]{1,200})\] ")
"""Spark's names of errors, as its messages begin with them. Bounded: a message may quote a long row."""
_HOLLOW = ("TASK_WRITE_FAILED", "FAILED_", "INTERNAL_", "STREAM_FAILED")
_DEEP = 20


@contextmanager
def writing(what: str, hints: Mapping[str, str] = {}) -> Iterator[None]:
    """Turns Spark's errors within a block into an `OutputError` about `what`."""
    try:
        yield
    except (PySparkException, Py4JError) as error:  # what PySpark has no class for comes as py4j's
        text = str(error)
        if (memory := out_of_memory(text)) is not None:  # the sink is not the cause
            raise memory from error
        hint = next((hint for sign, hint in {**_HINTS, **hints}.items() if sign in text), None)
        raise OutputError(f"{what} cannot be written: {reason_of(error)}", hint=hint) from error


def out_of_memory(text: str) -> EngineError | None:
    """The error to show where a text of Spark says that memory ran out."""
    for pattern, (message, hint) in _MEMORY.items():
        if re.search(pattern, text, re.DOTALL):
            return EngineError(message, hint=hint)
    return None


def reason_of(error: PySparkException | Py4JError) -> str:
    """The name of the error: Spark's own if it has one that says more than "a job failed", else the Java class."""
    named = [name for name in _CONDITION.findall(str(error)) if not name.startswith(_HOLLOW)]
    origin = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    return named[-1] if named else _innermost(origin) or type(error).__name__


def _innermost(origin: Any) -> str | None:
    """The class of the innermost Java exception, as far as the other side can still be asked."""
    name = None
    try:
        for _ in range(_DEEP):
            if origin is None:
                break
            name = str(origin.getClass().getSimpleName())
            origin = origin.getCause()
    except Exception:  # the gateway may be gone, and a message about a message helps nobody
        pass
    return name
