"""Two sinks as models of the real ones, which hold each batch to its word.

`Log` is exactly once, as Delta's tables are: a batch that it has is let pass if it says the same, a gap is refused.
`Topic` is at least once under stable ids, as Kafka's are: of each id the last message counts. Both outlive the query.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["Log", "Topic", "Violation"]

Violation = tuple[str, str, str | None]
"""Rule, left key, right key."""
Delta = Mapping[str, Any]


def _violation(delta: Delta) -> Violation:
    return delta["rule"], delta["left_key"], delta["right_key"]


class Log:
    """Every batch once."""

    def __init__(self) -> None:
        self._batches: list[dict[str, tuple[Violation, str, str | None]]] = []
        self.open: dict[str, Violation] = {}
        """By id: the sum of the log."""

    def write(self, batch: int, deltas: Sequence[Delta]) -> None:
        assert batch <= len(self._batches), f"the log has {len(self._batches)} batches, and is given number {batch}"
        told = {delta["violation_id"]: (_violation(delta), delta["change"], delta["reason"]) for delta in deltas}
        assert len(told) == len(deltas), "a batch tells a violation once"
        if batch < len(self._batches):
            assert self._batches[batch] == told, f"batch {batch} says something else when it is repeated"
            return
        for name, (violation, change, _) in told.items():
            if change == "added":
                assert name not in self.open, f"{violation} is added, and was open"
                self.open[name] = violation
            else:
                assert self.open.pop(name, None) == violation, f"{violation} is removed, and was not open"
        self._batches.append(told)

    @property
    def last(self) -> list[tuple[Violation, str, str | None]]:
        """What the last batch told: violation, change and reason."""
        return list(self._batches[-1].values())


class Topic:
    """The last message of every id."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[Violation, str]] = {}

    def write(self, batch: int, deltas: Sequence[Delta]) -> None:
        for delta in deltas:
            self._last[delta["violation_id"]] = (_violation(delta), delta["change"])

    @property
    def open(self) -> dict[str, Violation]:
        """What a reader of the compacted topic takes to be open."""
        return {name: violation for name, (violation, change) in self._last.items() if change == "added"}
