"""Whether a topic is still the one that a checkpoint was begun with. Asking brokers is tested with the stream."""

from __future__ import annotations

from dataclasses import replace

import pytest

from weever_stream.errors import StateError
from weever_stream.feeds.topics import Topic, recognize

TOPIC = Topic("t", "id-1", first={0: 0, 1: 5}, end={0: 10, 1: 20})
READ = {"0": 10, "1": 5}


def test_the_same_topic_with_all_that_was_not_read_is_taken():
    recognize(TOPIC, TOPIC.noted, READ)
    recognize(TOPIC, TOPIC.noted, {})


@pytest.mark.parametrize(
    ("now", "read", "said"),
    [
        (replace(TOPIC, id="id-2"), READ, "was deleted and made anew: its id was id-1, now it is id-2"),
        (replace(TOPIC, name="u"), READ, "was made for the topic t, now u"),
        (
            replace(TOPIC, end={0: 10, 1: 20, 2: 0}),
            READ,
            "had 2 partitions when the checkpoint was begun, now it has 3",
        ),
        (TOPIC, {"0": 11, "1": 5}, "partition 0 ends before offset 10, and the job has read up to offset 10"),
        (TOPIC, {"0": 3, "1": 4}, "no longer holds the offsets 4 to 4 of partition 1"),
        (replace(TOPIC, first={0: 7, 1: 5}), {"0": 3, "1": 5}, "no longer holds the offsets 3 to 6 of partition 0"),
    ],
)
def test_another_topic_or_a_hole_is_refused_with_what_differs(now, read, said):
    with pytest.raises(StateError) as refused:
        recognize(now, TOPIC.noted, read)
    assert said in refused.value.message
    assert "--take-over" in refused.value.hint


def test_brokers_that_give_no_ids_are_believed_as_far_as_offsets_tell():
    nameless = replace(TOPIC, id=None)
    recognize(nameless, nameless.noted, READ)
    recognize(TOPIC, nameless.noted, READ)
    with pytest.raises(StateError, match="has gone back"):
        recognize(nameless, nameless.noted, {"0": 99})


def test_a_hole_may_be_allowed():
    recognize(TOPIC, TOPIC.noted, {"0": 3, "1": 0}, lost_is_an_error=False)
