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

from weever_stream.errors import OutputError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

__all__ = ["reason_of", "writing"]

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
        hint = next((hint for sign, hint in {**_HINTS, **hints}.items() if sign in text), None)
        raise OutputError(f"{what} cannot be written: {reason_of(error)}", hint=hint) from error


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
