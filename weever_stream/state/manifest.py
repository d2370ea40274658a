"""The manifest: all that Spark's state holds of a shard: its live runs, which of their rows are dead, what is open.

It is one versioned binary value: a container of `detect.sections` whose table of contents lists every family's runs.
Small runs are sections of it; larger ones are files of the run store, known by name, length and checksum. Files that
are no longer needed stay listed as retired until no batch that Spark can go back to needs them. Cost: linear in runs.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from weever_stream.detect.dump import damage_told
from weever_stream.detect.sections import Format, pieces, unpacked
from weever_stream.state.store import StoredFile

if TYPE_CHECKING:
    from weever_stream.detect.sections import Section

__all__ = ["ENDED", "HIDDEN", "FamilyState", "Manifest", "SavedRun", "SavedTail"]

_FORMAT = Format(
    b"WEEVERSH", 1, "the state of a shard",
    "start from an older checkpoint, or delete it and let the job build its state again",
)  # fmt: skip


ENDED, HIDDEN = -1, -2
"""Of a rule that reports nothing, in place of the number of its open violations."""


@dataclass
class SavedRun:
    """A run: in a file, or as sections of the manifest."""

    rows: int
    trees: list[bool]
    """Which sides have a tree."""
    dead: Section | None = None
    """In roaring's format."""
    file: StoredFile | None = None
    inline: list[Section] = field(default_factory=list)


@dataclass
class SavedTail:
    """The newest rows."""

    rows: int
    table: Section
    order: Section
    dead: Section


@dataclass
class FamilyState:
    """What a shard holds of one family."""

    runs: list[SavedRun] = field(default_factory=list)
    tail: SavedTail | None = None
    open: list[int] = field(default_factory=list)
    """Open violations of each of its rules that this shard reports. `ENDED`: the rule has ended, or another took its
    place. `HIDDEN`: the rule is backfilled here, and the one that it is to replace still reports."""
    drops: int = 0
    """Remembered drops, at most."""
    tally: dict[str, int] = field(default_factory=dict)
    filled: int = 0
    """Messages that have filled it so far."""
    cleared: int = -1
    """The sequence at which the table was last emptied, for rows that are filled in later."""
    unlisted: list[int] = field(default_factory=list)
    """Twice the open violations of each rule that are not listed, summed over all shards.

    A pair that two shards see, each from one of its rows, is half a pair to either: one shard's number means little.
    """


@dataclass
class Manifest:
    """The state of a shard."""

    batch: int = -1
    """The batch that wrote it."""
    families: dict[str, FamilyState] = field(default_factory=dict)
    """By the family's identity."""
    retired: list[tuple[int, str]] = field(default_factory=list)
    """Files that this shard no longer needs, and the batch since which."""

    def dump(self) -> bytes:
        """The manifest as one value."""
        sections: list[tuple[str, Section]] = []

        def kept(name: str, body: Section | None) -> int:
            if body is None:
                return -1
            sections.append((name, body))
            return len(sections) - 1

        listed = {}
        for identity, state in self.families.items():
            runs = [
                {
                    "rows": run.rows,
                    "trees": run.trees,
                    "dead": kept("dead", run.dead),
                    "file": asdict(run.file) if run.file else None,
                    "inline": [kept("run", body) for body in run.inline],
                }
                for run in state.runs
            ]
            tail = state.tail and [
                state.tail.rows, kept("tail", state.tail.table), kept("order", state.tail.order),
                kept("dead", state.tail.dead),
            ]  # fmt: skip
            listed[identity] = {
                "runs": runs, "tail": tail, "open": state.open, "drops": state.drops, "tally": state.tally,
                "filled": state.filled, "cleared": state.cleared, "unlisted": state.unlisted,
            }  # fmt: skip
        contents = {"batch": self.batch, "families": listed, "retired": self.retired}
        return b"".join(pieces(_FORMAT, contents, sections))

    @classmethod
    def load(cls, content: bytes, name: str) -> Manifest:
        """The manifest of a value; `name` says in errors whose it is."""
        with damage_told(name):
            contents, sections = unpacked(_FORMAT, name, content)
            listed = contents["families"]
            return cls(
                int(contents["batch"]),
                {identity: _family(state, sections) for identity, state in listed.items()},
                [(int(batch), str(file)) for batch, file in contents["retired"]],
            )

    def live(self) -> set[str]:
        """The names of the files that it needs."""
        return {run.file.name for state in self.families.values() for run in state.runs if run.file}

    def files(self) -> set[str]:
        """The names of all files that it needs or still lists."""
        return self.live() | {name for _, name in self.retired}


def _family(listed: dict[str, Any], sections: list[memoryview]) -> FamilyState:
    def body(number: int) -> Section | None:
        return sections[number] if number >= 0 else None

    runs = [
        SavedRun(
            int(run["rows"]),
            [bool(there) for there in run["trees"]],
            body(run["dead"]),
            StoredFile(**run["file"]) if run["file"] else None,
            [sections[number] for number in run["inline"]],
        )
        for run in listed["runs"]
    ]
    tail = listed["tail"]
    return FamilyState(
        runs,
        SavedTail(int(tail[0]), *(sections[number] for number in tail[1:])) if tail else None,
        [int(count) for count in listed["open"]],
        int(listed["drops"]),
        {str(name): int(count) for name, count in listed["tally"].items()},
        int(listed["filled"]),
        int(listed["cleared"]),
        [int(count) for count in listed["unlisted"]],
    )
