"""What a Kafka topic is beyond its name: its id, its partitions, and which offsets it holds.

Offsets alone cannot tell that a topic was deleted and made anew: as soon as it has more messages again than were read,
they look as if nothing had happened. Brokers give every topic an id (since Kafka 2.8), which a new topic of the same
name does not have. And a topic that got more partitions sends keys elsewhere, where offsets compare with nothing. Both
are refused here, and so are messages that are gone before they were read, with what is lost.

Costs three requests to the brokers a start, by the client that Spark's connector brings, with the source's own options.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from weever_stream.errors import DataError, EngineError, StateError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

__all__ = ["ANEW", "Topic", "look", "recognize"]

ANEW = "name an empty checkpoint and start with --take-over, which finds everything again"
_SECONDS = 60
_NO_ID = "AAAAAAAAAAAAAAAAAAAAAA"
"""What brokers before Kafka 2.8 say."""


@dataclass(frozen=True)
class Topic:
    """A topic as the brokers know it now."""

    name: str
    id: str | None
    first: Mapping[int, int]
    """The first offset that each partition still holds."""
    end: Mapping[int, int]
    """The offset behind the last one of each partition."""

    @property
    def noted(self) -> dict[str, Any]:
        """What must stay the same as long as a checkpoint lives."""
        return {"topic": self.name, "id": self.id, "partitions": len(self.end)}


def look(spark: SparkSession, options: Mapping[str, str], name: str) -> Topic:
    """Asks the brokers. `options` are those of Spark's reader, of which `kafka.…` are the client's."""
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

    jvm: Any = spark._jvm
    settings = jvm.java.util.HashMap()
    for option, value in options.items():
        if option.startswith("kafka."):
            settings.put(option.removeprefix("kafka."), value)
    admin = None
    try:
        admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(settings)
        return _described(jvm, admin, name)
    except Py4JJavaError as error:
        raise _told(error.java_exception, name) from None
    finally:
        if admin is not None:
            admin.close(jvm.java.time.Duration.ofSeconds(5))


def _described(jvm: Any, admin: Any, name: str) -> Topic:
    seconds = jvm.java.util.concurrent.TimeUnit.SECONDS
    names = jvm.java.util.Collections.singletonList(name)
    described = admin.describeTopics(names).allTopicNames().get(_SECONDS, seconds).get(name)
    numbers = [int(partition.partition()) for partition in described.partitions()]

    def offsets(which: Any) -> dict[int, int]:
        asked = jvm.java.util.HashMap()
        for number in numbers:
            asked.put(jvm.org.apache.kafka.common.TopicPartition(name, number), which)
        found = admin.listOffsets(asked).all().get(_SECONDS, seconds)
        return {int(where.partition()): int(found[where].offset()) for where in found}

    spec = jvm.org.apache.kafka.clients.admin.OffsetSpec
    topic_id = str(described.topicId())
    return Topic(name, None if topic_id == _NO_ID else topic_id, offsets(spec.earliest()), offsets(spec.latest()))


def _told(failure: Any, name: str) -> DataError | EngineError:
    """What a user is told of the client's exception: its kind, never its text, which may quote settings."""
    cause = failure.getCause() or failure
    kind = str(cause.getClass().getSimpleName())
    if kind in ("UnknownTopicOrPartitionException", "InvalidTopicException"):
        return DataError(f"there is no topic {name}", hint="check `source.topic` and `source.servers`")
    if kind.endswith("AuthorizationException"):
        return DataError(f"the topic {name} may not be read: {kind}", hint="the job needs Describe and Read on it")
    return EngineError(
        f"the brokers of the topic {name} cannot be reached: {kind}",
        hint="check `source.servers` and the options under `source.options`",
    )


def recognize(
    topic: Topic, noted: Mapping[str, Any], read: Mapping[str, int], *, lost_is_an_error: bool = True
) -> None:
    """Refuses a topic that is not the noted one, or lacks messages behind those that were read.

    `noted`: as `Topic.noted` had it when the checkpoint was begun. `read`: by partition, where the job stands.
    """
    name = topic.name
    if noted.get("topic") != name:
        raise StateError(f"the checkpoint was made for the topic {noted.get('topic')}, now {name}", hint=ANEW)
    if noted.get("id") and topic.id and noted["id"] != topic.id:
        raise StateError(
            f"the topic {name} was deleted and made anew: its id was {noted['id']}, now it is {topic.id}",
            hint=f"its offsets mean other messages than those that were read; {ANEW}",
        )
    if noted.get("partitions") != len(topic.end):
        raise StateError(more_partitions(name, int(noted["partitions"])) + f", now it has {len(topic.end)}", hint=MOVED)
    for number, at in sorted((int(partition), at) for partition, at in read.items()):
        if number in topic.end and topic.end[number] < at:
            raise StateError(
                f"the topic {name} has gone back: partition {number} ends before offset {topic.end[number]},"
                f" and the job has read up to offset {at - 1}",
                hint=f"it was made anew, or lost its end; {ANEW}",
            )
        if lost_is_an_error and topic.first.get(number, at) > at:
            raise StateError(
                f"the topic {name} no longer holds the offsets {at} to {topic.first[number] - 1} of partition {number},"
                " which the job has not read",
                hint=f"changes are lost: {ANEW}; and retain the topic longer",
            )


MOVED = f"keys have moved to other partitions, whose offsets compare with nothing: {ANEW}"


def more_partitions(name: str, had: int) -> str:
    """What is said of a topic that got more partitions."""
    return f"the topic {name} had {had} partition{'' if had == 1 else 's'} when the checkpoint was begun"
