"""What a job file may say under `learn`: which rules a job looks for in its own table while that changes, and whom it
tells.

Only shapes and ranges are checked here; whether the columns are there is seen when the feed is opened. The defaults are
smaller than those of `weever discover`: the work is done again with every batch, for as long as the job runs.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Discriminator, Field, Tag, TypeAdapter

from weever_stream.job.options import Duration, KafkaSink, Place, Text, _kind, _Options

__all__ = ["EventsSink", "EventsTable", "Learn", "learn_options"]


class EventsTable(_Options):
    """A Delta table of rule events, which is appended to."""

    kind: Literal["delta"]
    path: Place


EventsSink = Annotated[
    Annotated[EventsTable, Tag("delta")] | Annotated[KafkaSink, Tag("kafka")],
    Discriminator(_kind),
]
"""Where rule events go. A Kafka message has the rule's fingerprint as its key."""


def _once(names: list[str]) -> list[str]:
    if again := sorted({name for name in names if names.count(name) > 1}):
        raise ValueError(f"names {', '.join(again)} twice")
    return names


class Learn(_Options):
    """Which rules are looked for."""

    columns: Annotated[list[Text], Field(min_length=1), AfterValidator(_once)] | None = None
    """Rules are about these; all that can be compared if nothing is said."""
    max_predicates: Annotated[int, Field(ge=1, le=10)] = 4
    """Longer rules are not looked for. Their number grows with the length far faster than their use."""
    cross: bool = False
    """Whether different columns are compared. Which columns share values may change with every batch, and each pair of
    columns that may be compared adds up to six predicates to the space, so here this must be asked for."""
    order_text: bool = False
    """Whether texts are compared by order too."""
    error: Annotated[float, Field(gt=0, lt=1)] | None = None
    """The share of pairs of rows that may violate a rule that is told as almost true."""
    sinks: list[EventsSink] = []
    every: Duration | None = None
    """How often to look for changes; the job's own trigger if nothing is said."""

    @property
    def space(self) -> dict[str, Any]:
        """What decides which rules can be found: where it changes, all is learned anew."""
        return {name: getattr(self, name) for name in ("columns", "max_predicates", "cross", "order_text", "error")}


learn_options: TypeAdapter[Learn] = TypeAdapter(Learn)
