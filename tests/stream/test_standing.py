"""Where a job is in its source, in the words of each kind of source."""

from __future__ import annotations

from typing import Any

import pytest

from tests.stream.jobs import job_text
from weever_stream.job.job import job_of
from weever_stream.rules import read_rules_text
from weever_stream.stream.standing import Standing

DELTA = {"kind": "delta", "path": "/lake/t"}
KAFKA = {"kind": "kafka", "servers": "localhost:9092", "topic": "orders", "format": "json"}
FILES = {"kind": "files", "path": "/feed", "format": "json"}


@pytest.mark.parametrize(
    ("source", "position", "said"),
    [
        (DELTA, None, "the table /lake/t"),
        (DELTA, '{"version":12}', "the table /lake/t at version 12"),
        (KAFKA, None, "the topic orders"),
        (KAFKA, '{"orders":{"1":3,"0":120}}', "the topic orders from offsets 0: 120, 1: 3"),
        (FILES, '{"files":3}', "the folder /feed"),
    ],
)
def test_a_position_is_said_in_words(source: dict[str, Any], position: str | None, said: str):
    standing = Standing(job_of(read_rules_text(job_text(source, "/tmp/none"))), position)
    assert str(standing) == said
    assert not standing.moved
    standing.move('{"version":13}')
    assert standing.moved
    assert source is not DELTA or str(standing) == "the table /lake/t at version 13"
