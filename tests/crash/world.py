"""What the harness knows and no driver can lose: the table at every position, and its violations by nested loops.

    world = World(folder, seed=1)      a feed that the harness writes itself, and a job with a Delta and a files sink
    world.grow(10)                     ten more positions
    world.check()                      whatever is published now is the truth at the position it is published under

`check` reads the sinks without a JVM, so it can be called after every death, while nothing runs. It holds every version
of the table `open` that it has not seen yet, and the log after each batch, to the truth at the position they name.
"""

from __future__ import annotations

import json
import os
import random
import shutil
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tests import oracle
from tests.conftest import SETTINGS
from tests.crash.learned import EVENTS, check_learned, learn_section
from tests.crash.wrong import Wrong
from weever_stream.storage import locate, open_delta, scan_delta

if TYPE_CHECKING:
    from tests.crash.pager import Pager

__all__ = ["World", "Wrong"]

Row = dict[str, Any]
Violation = tuple[str, str, str | None]
COLUMNS = {"id": "bigint", "a": "bigint", "b": "bigint", "n": "bigint", "c": "string"}
VALUES: dict[str, list[Any]] = {
    "a": [0, 1, 2, 3, 2**53 + 1, None],
    "b": [0, 1, 2],
    "n": [0, 1, 2, 2**53, 2**53 + 1, None],
    "c": ["", "x", "Ä", "the same first eight bytes", "the same first eight bytes!"],
}
RULES = {
    "dependency": {"fd": "a -> c"},
    "crossed": {"deny": "t.a = s.b and t.b = s.a and t.c != s.c"},
    "order": {"deny": "t.b = s.b and t.n < s.n and t.a > s.a"},
    "one_row": {"deny": "t.n > t.a"},
}
_STATE = {
    # Snapshots of Spark's own state after a few batches, in the midst of kills, instead of after ten and a minute.
    "spark.sql.streaming.stateStore.minDeltasForSnapshot": 3,
    "spark.sql.streaming.stateStore.maintenanceInterval": "500ms",
    "spark.sql.streaming.minBatchesToRetain": 6,
    # For a cluster, where workers do not inherit the driver's environment.
    "spark.executor.memory": "512m",
    "spark.executorEnv.PYTHONPATH": str(Path(__file__).parents[2]),
}
_ARROW = pa.schema([(name, pa.string() if kind == "string" else pa.int64()) for name, kind in COLUMNS.items()])


@dataclass
class World:
    """A table that changes at random, the feed of its changes, the job, and what the job has published so far."""

    folder: Path
    seed: int = 0
    source: str = "files"
    keys: int = 30
    spark: Mapping[str, Any] = field(default_factory=dict)
    state: Mapping[str, Any] = field(default_factory=dict)
    alerts: Sequence[Mapping[str, Any]] = ()
    learns: bool = False
    """Whether the job also learns rules."""

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.random = random.Random(self.seed)
        self.table: dict[int, Row] = {}
        self.tables: list[dict[int, Row]] = []
        """The table at every position."""
        self.checked = -1
        """The last version of `open` that was held to the truth."""
        self.position = -1
        """The last position that was seen published."""
        self.batches = 0
        self.pager: Pager | None = None
        """Who is told of alerts."""
        self.kills = 0
        self.feed = self.folder / "feed"
        self.job = self.folder / "job.yaml"
        self.describe()
        self._truth = cache(self._violations)
        if self.source == "files":
            self.feed.mkdir()
        self.grow(1)

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def describe(self, *, spark: Mapping[str, Any] = {}, **state: Any) -> None:
        """Writes the job file, with these settings besides its own."""
        one = {"maxFilesPerTrigger": 1}
        # Without it the first batch would be a snapshot of all that the harness has written ahead.
        from_the_first = {"starting_version": 0} if self.source == "delta" else {}
        sinks = [
            {"kind": "delta", "path": str(self.folder / "out")},
            {"kind": "files", "path": str(self.folder / "lines")},
        ]
        text = json.dumps(
            {
                "table": "rows",
                "key": "id",
                "columns": COLUMNS,
                "rules": [{"name": name, **rule} for name, rule in RULES.items()],
                "source": {"kind": self.source, "path": str(self.feed), "options": one, **from_the_first},
                "sinks": sinks,
                "alerts": list(self.alerts),
                **({"learn": learn_section(self.folder)} if self.learns else {}),
                "spark": {**SETTINGS, **_STATE, "spark.python.daemon.module": "tests.crash.daemon", **self.spark, **spark},
                # Few batches are retained, so that files are deleted while we look.
                "state": {
                    "checkpoint": str(self.checkpoint), "shards": 3, "inline_bytes": 0, "retain_batches": 5,
                    **self.state, **state,
                },
            },
            indent=1,
        )  # fmt: skip
        self.job.write_text(text)
        self.rules = oracle.written_file(text)

    def copied(self, folder: Path) -> World:
        """The checkpoint and the sinks as they are now, in another folder; the feed is the same one."""
        other = copy(self)
        other.folder, other.job = folder, folder / "job.yaml"
        folder.mkdir(parents=True)
        for name in ("checkpoint", "out", "lines", EVENTS):
            if (self.folder / name).exists():
                shutil.copytree(self.folder / name, folder / name)
        other.describe()
        return other

    # The feed

    def grow(self, positions: int) -> None:
        """Writes more of the feed: a file or a commit for each position."""
        for _ in range(positions):
            changes = self._change()
            (self._commit if self.source == "delta" else self._file)(changes)
            self.tables.append(dict(self.table))

    def ahead(self, positions: int) -> None:
        """Lets the feed be so many positions ahead of what is published."""
        self.grow(max(0, positions - (self.last - self.position)))

    @property
    def last(self) -> int:
        """The last position of the feed."""
        return len(self.tables) - 1

    def _change(self) -> list[tuple[Row | None, Row | None]]:
        """Some keys change, each once: old row and new row."""
        many = self.keys if not self.tables else self.random.choice([1, 2, 4, 8])
        changes = []
        for key in self.random.sample(range(self.keys), many):
            old = self.table.pop(key, None)
            new = None
            if old is None or self.random.random() > 0.3:
                drawn = {name: self.random.choice(values) for name, values in VALUES.items()}
                self.table[key] = new = {"id": key, **drawn}
            changes.append((old, new))
        return changes

    def _file(self, changes: list[tuple[Row | None, Row | None]]) -> None:
        records: list[Row] = []
        for old, new in changes:
            if new is None:
                records.append({**(old or {}), "_change_type": "delete"})
            elif old is None:
                records.append({**new, "_change_type": "insert"})
            else:
                records.append({**old, "_change_type": "update_preimage"})
                records.append({**new, "_change_type": "update_postimage"})
        number = len(self.tables)
        beside = self.feed / f"_{number}"
        beside.write_text("".join(json.dumps({**record, "_commit_version": number}) + "\n" for record in records))
        os.utime(beside, (1_700_000_000 + number,) * 2)  # Spark reads the older file first
        beside.rename(self.feed / f"{number:06}.json")

    def _commit(self, changes: list[tuple[Row | None, Row | None]]) -> None:
        from deltalake import DeltaTable, write_deltalake

        path = str(self.feed)
        if not self.tables:
            first = pa.Table.from_pylist([new for _, new in changes if new is not None], schema=_ARROW)
            write_deltalake(path, first, configuration={"delta.enableChangeDataFeed": "true"})
            return
        rows = [{**(new or old or {}), "gone": new is None} for old, new in changes]
        given = pa.Table.from_pylist(rows, schema=_ARROW.append(pa.field("gone", pa.bool_())))
        values = {name: f"given.{name}" for name in COLUMNS}
        merge = DeltaTable(path).merge(given, "kept.id = given.id", source_alias="given", target_alias="kept")
        (
            merge.when_matched_delete("given.gone")
            .when_matched_update(values)
            .when_not_matched_insert(values, predicate="not given.gone")
            .execute()
        )

    # The truth

    def truth(self, position: int) -> frozenset[Violation]:
        """The violations of the table at a position."""
        return self._truth(position)

    def _violations(self, position: int) -> frozenset[Violation]:
        found = oracle.violations(self.rules, self.tables[position].values(), "id")
        return frozenset((rule, str(left), None if right is None else str(right)) for rule, left, right in found)

    # What is published

    def check(self, *, whole: bool = False) -> None:
        """Raises `Wrong` where anything published is not the truth. `whole`: the last position must be published."""
        if (self.folder / "out" / "open" / "_delta_log").exists():
            self._check_open()
        told = self._check_log() if (self.folder / "out" / "log" / "_delta_log").exists() else {}
        self._check_lines(told)
        self._check_progress()
        if self.learns:
            check_learned(self, whole=whole)
        if whole:
            noted = self._progress()
            if noted is None or noted[0] != self.last:
                raise Wrong("lost", f"the feed is at {self.last}, published is {noted and noted[0]}")
            if self._open(self._delta("open")) != self.truth(self.last):
                raise Wrong("wrong", f"`open` is not the truth at {self.last}")

    def _delta(self, table: str) -> Any:
        return open_delta(locate(self.folder / "out" / table))

    @staticmethod
    def _at(position: str) -> int:
        told = json.loads(position)
        return int(told.get("entry", told.get("version", -1)))

    def _rows(self, name: str, table: Any, columns: list[str] | None = None) -> pa.Table:
        return scan_delta(table, locate(self.folder / "out" / name)).to_table(columns=columns)

    def _open(self, table: Any) -> frozenset[Violation]:
        rows = self._rows("open", table, ["rule", "left_key", "right_key"]).to_pylist()
        listed = [(row["rule"], row["left_key"], row["right_key"]) for row in rows]
        if len(set(listed)) != len(listed):
            raise Wrong("duplicated", f"open twice: {[v for v, n in Counter(listed).items() if n > 1][:3]}")
        return frozenset(listed)

    def _check_open(self) -> None:
        """Every version since the last time."""
        table = self._delta("open")
        newest = table.version()
        history = {entry["version"]: entry for entry in table.history(newest - self.checked + 50)}
        at = None
        for version in sorted(history):
            told = _metadata(history[version])
            at = self._at(told["source_position"]) if told else at
            if version <= self.checked:
                continue
            table.load_as_version(version)
            expected = self.truth(at) if at is not None else frozenset()
            found = self._open(table)
            if found != expected:
                raise Wrong(
                    "wrong",
                    f"version {version} of `open`, at position {at}: {_difference(found, expected)}",
                )
            if at is not None:
                if at < self.position and told:
                    raise Wrong("wrong", f"version {version} of `open` goes back from {self.position} to {at}")
                self.position = max(self.position, at)
        self.checked = newest

    def _check_log(self) -> dict[int, Counter[tuple[str, str]]]:
        """The log after each of its batches. Returns ids and changes of every batch."""
        rows = self._rows("log", self._delta("log")).sort_by("batch_id").to_pylist()
        batches: dict[int, list[Row]] = defaultdict(list)
        for row in rows:
            batches[row["batch_id"]].append(row)
        open_now: dict[str, Violation] = {}
        for batch, told in batches.items():
            seen = Counter((row["violation_id"], row["change"]) for row in told)
            if twice := [one for one, n in seen.items() if n > 1]:
                raise Wrong("duplicated", f"the log has in batch {batch} twice: {twice[:3]}")
            for row in sorted(told, key=lambda row: row["change"], reverse=True):
                violation = (row["rule"], row["left_key"], row["right_key"])
                if (row["violation_id"] in open_now) is (row["change"] == "added"):
                    raise Wrong("wrong", f"the log's sum of {violation} is not 0 or 1 in batch {batch}")
                if row["change"] == "added":
                    open_now[row["violation_id"]] = violation
                else:
                    del open_now[row["violation_id"]]
            [position] = {row["source_position"] for row in told}
            expected = self.truth(self._at(position))
            if set(open_now.values()) != expected:
                found = frozenset(open_now.values())
                raise Wrong("wrong", f"the log after batch {batch}, at {position}: {_difference(found, expected)}")
        self.batches = max([self.batches, *(batch + 1 for batch in batches)])
        return {b: Counter((row["violation_id"], row["change"]) for row in told) for b, told in batches.items()}

    def _check_lines(self, told: dict[int, Counter[tuple[str, str]]]) -> None:
        """The files sink comes second: it has what the log has, but perhaps for the last batch."""
        found: dict[int, Counter[tuple[str, str]]] = {}
        for folder in (self.folder / "lines").glob("batch_id=*"):
            if (folder / "_SUCCESS").exists():
                lines = [json.loads(line) for file in folder.glob("*.json") for line in file.read_text().splitlines()]
                number = int(folder.name.partition("=")[2])
                found[number] = Counter((line["violation_id"], line["change"]) for line in lines)
        for batch, expected in told.items():
            if batch == max(told) and batch not in found:
                continue
            if batch not in found:
                raise Wrong("lost", f"the files sink has no batch {batch}")
            if found[batch] != expected:
                raise Wrong("wrong", f"the files sink has another batch {batch} than the log")
        if extra := found.keys() - told.keys():
            raise Wrong("wrong", f"the files sink has the batches {sorted(extra)}, which the log has not")

    def _progress(self) -> tuple[int, dict[str, int]] | None:
        note = self.checkpoint / "weever" / "progress.json"
        if not note.exists():
            return None
        told = json.loads(note.read_text())
        return self._at(told["position"]), told["open"]

    def _check_progress(self) -> None:
        noted = self._progress()
        if noted is None:
            return
        at, counts = noted
        if +Counter(counts) != Counter(rule for rule, _, _ in self.truth(at)):
            raise Wrong("wrong", f"progress.json counts other violations than there are at {at}")


def _metadata(entry: Mapping[str, Any]) -> dict[str, Any] | None:
    try:
        told = json.loads(entry.get("userMetadata") or "")
        return told if "source_position" in told else None
    except ValueError:
        return None


def _difference(found: frozenset[Violation], expected: frozenset[Violation]) -> str:
    return f"{len(found)} found, missing {sorted(expected - found, key=str)[:3]}, extra {sorted(found - expected, key=str)[:3]}"
