"""The Kafka sink against a broker: a compacted reading of the topic is the open set, whatever is sent again."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest

from tests.sinks.batches import NASTY, Pair, Story
from weever_stream.errors import OutputError
from weever_stream.job.options import KafkaSink, Rejects
from weever_stream.rules.references import Secret
from weever_stream.sinks import DELTA_COLUMNS, REJECT_COLUMNS, open_dead_letters, open_sinks

pytestmark = pytest.mark.slow


def last_messages(spark: Any, servers: str, topic: str) -> dict[str, Any]:
    """What compaction leaves of a topic."""
    options = {"kafka.bootstrap.servers": servers, "subscribe": topic}
    rows = spark.read.format("kafka").options(**options).load().orderBy("partition", "offset").collect()
    last = {row.key.decode(): row.value and json.loads(row.value) for row in rows}
    return {key: value for key, value in last.items() if value is not None}


def test_the_last_messages_are_the_open_set(spark: Any, kafka: Any) -> None:
    options = KafkaSink(kind="kafka", servers=Secret(kafka.servers), topic=f"t{uuid4().hex}")
    [sink] = open_sinks(spark, [options])
    story, one, two, three = Story(spark), Pair("a", "1", "2"), Pair("b", NASTY, NASTY, city=NASTY), Pair("c", "7")
    for number, (added, removed) in enumerate([([one, two], []), ([], []), ([three], [one]), ([one], [three])]):
        batch = story.batch(number, added, removed)
        sink.write(batch)
        sink.write(batch)
        found = last_messages(spark, kafka.servers, options.topic)
        assert set(found) == set(story.open)
        for key, value in found.items():
            pair = story.open[key]
            assert tuple(value) == DELTA_COLUMNS
            assert (value["rule"], value["left_key"], value["right_key"]) == (pair.rule, pair.left, pair.right)
            assert json.loads(value["left_values"])["city"] == pair.city
            assert (
                value["detected_at"]
                == f"2026-03-08T0{6 + (story.opened[key] > 1)}:{'59' if story.opened[key] < 2 else '00'}:{(58 + story.opened[key]) % 60:02}.123456Z"
            )


def test_rejects_go_to_a_topic(spark: Any, kafka: Any) -> None:
    options = KafkaSink(kind="kafka", servers=kafka.servers, topic=f"t{uuid4().hex}")
    letters = open_dead_letters(spark, Rejects(sink=options), "unused")
    for _ in range(2):
        letters.write(Story(spark).batch(0, rejected=["{", NASTY]))
    found = last_messages(spark, kafka.servers, options.topic)
    assert [value["record"] for _, value in sorted(found.items())] == ["{", NASTY]
    assert all(tuple(value) == REJECT_COLUMNS for value in found.values())


def test_brokers_that_do_not_answer_are_told_from_a_topic_that_is_missing(spark: Any, kafka: Any) -> None:
    nowhere = KafkaSink(kind="kafka", servers="127.0.0.1:1", topic="nowhere", options={"kafka.max.block.ms": 500})
    for opens in (
        lambda: open_sinks(spark, [nowhere]),
        lambda: open_dead_letters(spark, Rejects(sink=nowhere), "unused"),
    ):
        with pytest.raises(OutputError, match="the topic nowhere cannot be written: its brokers cannot be reached"):
            opens()
    [sink] = open_sinks(spark, [nowhere.model_copy(update={"servers": kafka.servers, "topic": "no topic"})])
    with pytest.raises(OutputError, match="the topic no topic cannot be written") as raised:
        sink.write(Story(spark).batch(0, [Pair("a", "VALUE")]))
    assert "VALUE" not in raised.value.render()
    # The brokers have gone since the start.
    sink._options = nowhere  # type: ignore[attr-defined]
    with pytest.raises(OutputError, match="its brokers cannot be reached") as raised:
        sink.write(Story(spark).batch(0, [Pair("a", "VALUE")]))
    assert "VALUE" not in raised.value.render()
    assert "topic is missing" not in raised.value.render()


def test_events_of_learned_rules_go_to_a_topic_by_fingerprint(spark: Any, kafka: Any) -> None:
    from datetime import datetime, timezone

    from weever_stream.learn.events import RuleEvent, as_table
    from weever_stream.rules import parse_rule
    from weever_stream.sinks.batch import EVENT_COLUMNS
    from weever_stream.sinks.ruleevents import RuleEvents, open_event_sinks

    options = KafkaSink(kind="kafka", servers=kafka.servers, topic=f"t{uuid4().hex}")
    [sink] = open_event_sinks(spark, [options])
    rule = parse_rule("t.a = s.a and t.b != s.b", name="a_determines_b")
    event = RuleEvent.of("dropped", rule, "a determines b", 0.25, (NASTY, "2", '{"a":1}', '{"a":1}'))
    at = datetime(2026, 3, 8, 7, tzinfo=timezone.utc)
    for _ in range(2):  # a batch that is written again repeats itself under the same key
        sink.write(RuleEvents(3, "query", '{"version":3}', at, as_table([event]), spark))
    sink.write(RuleEvents(4, "query", '{"version":4}', at, as_table([]), spark))
    found = last_messages(spark, kafka.servers, options.topic)
    assert list(found) == [rule.fingerprint]
    told = found[rule.fingerprint]
    assert tuple(told) == EVENT_COLUMNS
    assert (told["event"], told["error"], told["left_key"], told["batch_id"]) == ("dropped", 0.25, NASTY, 3)
    assert told["detected_at"].startswith("2026-03-08T07:00:00")
