"""A made-up change feed for docker-compose.yml: the parcels of `weever demo`, written to Kafka for as long as it runs.

First the table as it is, then the story of its mistakes, again and again, one step every PRODUCER_SECONDS. A message is
the whole row under its key, and a tombstone where the row is gone. Every round ends as it began, with all mended.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from itertools import chain, count
from typing import NamedTuple

from weever_stream.cli.demo_feed import Step, feed


class Message(NamedTuple):
    """What goes to Kafka: a row under its key, or its key alone."""

    key: str
    value: str | None


def messages(step: Step) -> list[Message]:
    """A step of the story as messages."""
    found = []
    for change in step.changes:
        row = {name: value for name, value in change.items() if not name.startswith("_")}
        gone = change["_change_type"] == "delete"
        found.append(Message(str(row["package_code"]), None if gone else json.dumps(row)))
    return found


def rounds() -> Iterator[list[Step]]:
    """The table and the story; then the story again, after the parcel that was cancelled has come back."""
    table, *story = feed()
    yield [table, *story]
    for number in count(2):
        yield [Step(f"round {number}: the cancelled parcel is back", table.changes), *story]


def main() -> None:
    """Writes until it is ended."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": os.environ["KAFKA_SERVERS"], "enable.idempotence": True})
    topic, pause = os.environ["KAFKA_TOPIC"], float(os.environ.get("PRODUCER_SECONDS", "20"))
    for step in chain.from_iterable(rounds()):
        for message in messages(step):
            producer.produce(topic, key=message.key, value=message.value)
        if left := producer.flush(60):
            sys.exit(f"{left} messages were not taken within a minute")
        print(step.story, flush=True)
        time.sleep(pause)


if __name__ == "__main__":
    main()
