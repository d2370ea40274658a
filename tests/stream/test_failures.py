"""What is said when a query fails. Catches: a failure that is told by the name of a Java class, and rows that are quoted."""

from __future__ import annotations

import re
import traceback

import pytest

from weever_stream.errors import EngineError, OutputError
from weever_stream.sinks.failures import writing
from weever_stream.stream.failures import shorten_failures, told

_SPARK = "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 2.0 failed 4 times: "


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            _SPARK
            + "Python worker exited unexpectedly (crashed)\n\tat org.apache.spark\nCaused by: java.io.EOFException",
            "a Python worker died again and again, most likely killed because memory ran out",
        ),
        (_SPARK + "java.lang.OutOfMemoryError: Java heap space", "Java ran out of memory"),
        (_SPARK + "java.lang.OutOfMemoryError: GC overhead limit exceeded", "Java ran out of memory"),
        (_SPARK + "[UNABLE_TO_ACQUIRE_MEMORY] Unable to acquire 65536 bytes of memory", "Java ran out of memory"),
        (_SPARK + "MemoryError: 4711", "a Python worker ran out of memory"),
        (
            _SPARK + "ExecutorLostFailure (executor 1 exited): Container killed on request. Exit code is 137",
            "an executor was killed, most likely because its memory ran out",
        ),
        (_SPARK + "java.io.IOException: No space left on device", "no space left"),
        (_SPARK + "[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] row 4711", "state/"),
        (_SPARK + "[SOME_CONDITION] the row with key 4711", "the query failed: SOME_CONDITION"),
        (
            "Traceback\nweever_stream.errors.DataError: 3 of 4 records cannot be read\n  hint: mend the feed\n",
            "3 of 4 records cannot be read",
        ),
    ],
)
def test_a_failure_is_told_in_our_words_with_what_to_do(text: str, said: str):
    error = told([text])
    assert said in error.message
    assert error.hint
    assert "4711" not in str(error)


_TRACE = (
    "An error occurred while calling o1.save.\n: " + "\tat org.apache.spark.SomeClass.call(SomeClass.scala:1)\n" * 2000
)
_OF_SPARK = re.compile(
    "py4j.protocol.Py4JJavaError: An error occurred while calling((.|\r\n|\r|\n)*)(java.lang.InterruptedException)"
)
"""`StreamExecution.PROXY_ERROR`, which recurses for every character between the two."""


def raised(cause: str, error: Exception | None = None) -> str:
    """What Spark gets to see of a batch that fails."""
    with pytest.raises(Exception) as seen, shorten_failures():  # noqa: PT012 - any of them
        try:
            raise RuntimeError(cause)
        except RuntimeError as inner:
            if error is None:
                raise
            raise error from inner
    return "".join(traceback.format_exception(seen.value))


def test_a_batch_that_fails_is_told_to_spark_without_pages_of_java():
    for cause, error, said in [
        (_TRACE, OutputError("the topic t cannot be written", hint="look at it"), "the topic t cannot be written"),
        (f"{_TRACE}Caused by: java.io.IOException: No space left on device", None, "no space left on the device"),
    ]:
        text = raised(cause, error)
        assert len(text) < 3000
        assert not _OF_SPARK.search(text)
        assert said in told([text]).message
        assert told([text]).hint


def test_a_batch_that_was_stopped_is_still_known_to_be():
    cause = f"py4j.protocol.Py4JJavaError: {_TRACE}Caused by: java.lang.InterruptedException\n\t at x"
    for error in (None, OutputError("the topic t cannot be written: InterruptedException")):
        text = raised(cause, error)
        assert len(text) < 3000
        found = _OF_SPARK.search(text)
        assert found
        assert len(found[0]) < 200


def test_a_store_that_does_not_answer_is_not_taken_for_a_stop():
    """Clients of S3 and HDFS throw the exception of an interrupted thread for their timeouts too."""
    interrupted = f"{_TRACE}Caused by: java.io.InterruptedIOException"
    unanswered = f"{interrupted}: getFileStatus on s3a://lake/t: SdkClientException: connect timed out\n\t at x"
    text = raised(unanswered, OutputError("the Delta table t cannot be written: InterruptedIOException"))
    assert told([text]).message == "the Delta table t cannot be written: InterruptedIOException"
    assert "stopped" not in raised(f"{interrupted}: x\nCaused by: org.apache.http.conn.ConnectTimeoutException\n")
    for stopped in (
        f"{interrupted}\n\tat java.base/java.net.Socket.setTimeout(Socket.java:1)",
        f"{interrupted}: call timed out\nCaused by: java.lang.InterruptedException",
        f"{_TRACE}Caused by: java.nio.channels.ClosedByInterruptException: timed out",
    ):
        assert "the batch was stopped" in raised(stopped)


def test_an_error_of_python_keeps_its_traceback():
    text = raised("a mistake of ours")
    assert "RuntimeError: a mistake of ours" in text
    assert "in raised" in text


def test_a_new_schema_and_those_who_debug_see_all_of_it(monkeypatch: pytest.MonkeyPatch):
    assert "DELTA_SCHEMA_CHANGED" in raised(f"[DELTA_SCHEMA_CHANGED] {_TRACE}")
    monkeypatch.setenv("WEEVER_DEBUG", "1")
    assert len(raised(_TRACE)) > len(_TRACE)


def test_a_sink_is_not_blamed_for_memory_that_ran_out():
    from py4j.protocol import Py4JError

    with pytest.raises(EngineError, match="Java ran out of memory") as seen, writing("the Delta table t"):
        raise Py4JError(_SPARK + "java.lang.OutOfMemoryError: Java heap space")
    assert "spark.driver.memory" in str(seen.value.hint)
