"""What a batch did, in numbers: for progress lines, for the notes beside the checkpoint, for metrics.

The open violations of every rule are the sum over shards of what each shard last told. They are noted for each shard,
not added up batch by batch, so a batch that is repeated after a crash changes nothing.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from datetime import datetime

    from weever_stream.learn.drift import Drift
    from weever_stream.state.noted import Noted
    from weever_stream.state.notes import Notes

__all__ = ["PROGRESS", "BatchReport", "Ledger", "ShardTally", "backfills_of", "trends_of"]

PROGRESS = "progress.json"
_TRENDS = "trends"


@dataclass(frozen=True)
class ShardTally:
    """What a shard told of itself at the end of a batch."""

    open: dict[int, int]
    """By the number of the rule."""
    became: dict[str, int]
    bytes: int
    seconds: float
    unlisted: dict[int, int] = field(default_factory=dict)
    """By the number of the rule, twice: see `manifest.FamilyState`."""
    rows: int | None = None
    """That it stores, the dead ones too; None in notes of a release that did not tell."""
    file_bytes: int = 0
    """Of its run files."""
    repeated: dict[int, int] = field(default_factory=dict)
    """By family, the new rows of this batch whose key had a row already."""
    filled: dict[int, int] = field(default_factory=dict)
    """By generation, the messages of its backfill that have come."""
    shown: list[int] = field(default_factory=list)
    """While a rule is built again: the generations whose rules report violations."""

    @classmethod
    def of(cls, told: dict[str, Any]) -> ShardTally:
        """From JSON."""
        counts = {int(rule): int(n) for rule, n in told["open"].items()}
        unlisted = {int(rule): int(n) for rule, n in told.get("unlisted", {}).items()}
        rows = told.get("rows")
        return cls(
            counts,
            dict(told["became"]),
            int(told["bytes"]),
            float(told["seconds"]),
            unlisted,
            None if rows is None else int(rows),
            int(told.get("file_bytes", 0)),
            {int(family): int(n) for family, n in told.get("repeated", {}).items()},
            {int(generation): int(n) for generation, n in told.get("filled", {}).items()},
            [int(generation) for generation in told.get("shown", ())],
        )


@dataclass(frozen=True)
class BatchReport:
    """One batch, done."""

    batch: int
    position: str
    detected_at: datetime
    changes: int
    rejected: int
    added: int
    removed: int
    open: dict[str, int]
    """Open violations of every rule, those with none too."""
    seconds: float
    """From the start of the batch's own work to its end, sinks included."""
    shard_seconds: float
    """Time inside the shards, all of them together."""
    duplicates: int = 0
    """New rows whose key had a row already, as far as the two met in a shard."""
    stale: int = 0
    """Changes so far, over all families, that were older than what was held."""
    behind: dict[str, str] = field(default_factory=dict)
    """What the source says of what it has not read yet."""
    unlisted: dict[str, int] = field(default_factory=dict)
    """Further violations of rules that are open and only counted, because a row has too many of them."""
    added_by_rule: dict[str, int] = field(default_factory=dict)
    """Of the rules that have any; those that have ended, too."""
    removed_by_rule: dict[str, int] = field(default_factory=dict)
    operations: dict[str, int] = field(default_factory=dict)
    """The changes by what they do: `put`, `drop`, `clear`."""
    held: dict[str, int] = field(default_factory=dict)
    """What all shards store: `rows`, and the bytes in Spark's `state` and in `files`. Nothing where it is not known."""
    backfilling: dict[str, float] = field(default_factory=dict)
    """Rules that are being backfilled, each with the share that is done: see `state.backfills`."""
    drifting: list[str] = field(default_factory=list)
    """Rules that break at a rate that their past does not explain."""
    drift: list[dict[str, Any]] = field(default_factory=list)
    """Of which rules that began or ended with this batch: see `learn.drift.Notice`."""

    def to_json(self) -> dict[str, Any]:
        """As one JSON object."""
        return {**vars(self), "detected_at": self.detected_at.isoformat()}


class Ledger:
    """Tallies of all shards, kept beside the checkpoint."""

    def __init__(
        self,
        notes: Notes,
        rules: Sequence[str | None],
        numbering: int = 0,
        pending: Callable[[Mapping[int, ShardTally]], dict[str, float]] = lambda shards: {},
    ) -> None:
        """`rules`: their names by number; None for one that has ended. `numbering`: tallies of another are void.

        `pending`: which rules are being backfilled, from what shards report.
        """
        self._notes, self._numbering, self._pending = notes, numbering, pending
        self._rules = list(rules)
        self.shards = _tallies(notes.read(PROGRESS), numbering)

    def take(self, shard: int, said: dict[str, Any]) -> ShardTally:
        """What a shard says at the end of a batch."""
        self.shards[shard] = tally = ShardTally.of(said)
        return tally

    def open(self) -> dict[str, int]:
        """Open violations of every rule."""
        counts = {name: 0 for name in self._rules if name is not None}
        for tally in self.shards.values():
            for rule, n in tally.open.items():
                if (name := self._rules[rule]) is not None:
                    counts[name] += n
        return counts

    def unlisted(self) -> dict[str, int]:
        """Violations that are open and not listed, of the rules that have any."""
        twice: dict[str, int] = {}
        for tally in self.shards.values():
            for rule, n in tally.unlisted.items():
                if (name := self._rules[rule]) is not None:
                    twice[name] = twice.get(name, 0) + n
        return {name: n // 2 for name, n in twice.items() if n}

    def backfilling(self) -> dict[str, float]:
        """Rules that are being backfilled, each with the share that is done."""
        return self._pending(self.shards)

    def stale(self) -> int:
        """Changes that did nothing because something newer was held."""
        became = [tally.became for tally in self.shards.values()]
        return sum(counts.get("stale", 0) - counts.get("superseded", 0) for counts in became)

    @staticmethod
    def duplicates(tallies: Iterable[ShardTally]) -> int:
        """New rows of a batch whose key had a row already. Every family sees all rows: the most that one has seen."""
        seen: Counter[int] = Counter()
        for tally in tallies:
            seen.update(tally.repeated)
        return max(seen.values(), default=0)

    def held(self) -> dict[str, int]:
        """What all shards store, see `BatchReport.held`."""
        tallies = self.shards.values()
        rows = [tally.rows for tally in tallies if tally.rows is not None]
        if len(rows) < len(tallies):
            return {}
        sizes = {"state": sum(tally.bytes for tally in tallies), "files": sum(tally.file_bytes for tally in tallies)}
        return {"rows": sum(rows), **sizes}

    def note(self, report: BatchReport, drift: Drift | None = None) -> None:
        """Publishes that a batch is complete: its position, what is open since, and how rules have been doing."""
        shards = {str(shard): vars(tally) for shard, tally in sorted(self.shards.items())}
        noted = {**report.to_json(), "numbering": self._numbering, "shards": shards}
        self._notes.write(PROGRESS, noted if drift is None else {**noted, _TRENDS: drift.as_json()})


def _tallies(progress: Mapping[str, Any] | None, numbering: int) -> dict[int, ShardTally]:
    """What shards last reported, if rules still have the numbers that they had then."""
    known = progress or {}
    shards = known.get("shards", {}) if known.get("numbering", 0) == numbering else {}
    return {int(shard): ShardTally.of(tally) for shard, tally in shards.items()}


def backfills_of(noted: Noted | None, progress: Mapping[str, Any] | None) -> dict[str, float]:
    """Rules that are being backfilled under a checkpoint, each with the share that is done, from its notes."""
    from weever_stream.state.backfills import pending_backfills

    return {} if noted is None else pending_backfills(noted, _tallies(progress, noted.numbering))


def trends_of(progress: Mapping[str, Any] | None) -> Drift:
    """What was noted of how rules have been doing; nothing before the first batch. Raises `StateError`."""
    from weever_stream.learn.drift import Drift

    noted = (progress or {}).get(_TRENDS)
    return Drift() if noted is None else Drift.from_json(noted)
