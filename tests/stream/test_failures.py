"""What is said when a query fails. Catches: a failure that is told by the name of a Java class, and rows that are quoted."""

from __future__ import annotations

import pytest

from weever_stream.stream.failures import told

_SPARK = "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 2.0 failed 4 times: "


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            _SPARK
            + "Python worker exited unexpectedly (crashed)\n\tat org.apache.spark\nCaused by: java.io.EOFException",
            "not enough memory",
        ),
        (_SPARK + "java.lang.OutOfMemoryError: Java heap space", "not enough memory"),
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
