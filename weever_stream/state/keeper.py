"""From manifest to shards and back: opens what a batch touches, and saves what it changed.

A run that was saved stays as it is: its file or its section is named again by the next manifest, only its dead are
written anew. New runs are inlined while a shard's inline runs stay within a limit, and else become files, named by
shard, batch and content, so that a task which runs twice writes the same files. Opened files are kept mapped in a
cache; the cache is never the truth. Cost: linear in the number of runs, and in the rows of those that are new.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from pyroaring import BitMap

from weever_stream.detect.dump import damage_told, run_of, run_sections
from weever_stream.detect.run import Run
from weever_stream.detect.sections import Format, ipc, pieces, unpacked
from weever_stream.detect.shard import Shard, Tally, Tools
from weever_stream.index.tuples import TupleSet
from weever_stream.state.manifest import FamilyState, Manifest, SavedRun, SavedTail

if TYPE_CHECKING:
    from collections.abc import Collection

    from weever_stream.detect.families import FamilyPlan
    from weever_stream.detect.sections import Section
    from weever_stream.index.arrays import Ints
    from weever_stream.state.store import RunStore, StoredFile

__all__ = ["Keeper", "Opened"]

_RUN_FILE = Format(
    b"WEEVERUN", 1, "a run file", "restore the file from a copy, or let the job build its state again"
)  # fmt: skip
_FILES_MAPPED = 4096
_DROPS_WHILE_FILLING = 1 << 40
"""No number of drops is too many to remember while a family is filled."""


@dataclass
class Opened:
    """A family's shard as it was opened, with where each of its runs is saved."""

    family: FamilyPlan
    shard: Shard
    open: list[int]
    saved: dict[int, SavedRun] = field(default_factory=dict)
    """By the serial number of the run."""
    filled: int = 0
    cleared: int = -1
    unlisted: list[int] = field(default_factory=list)
    """As `FamilyState` has it."""


class Keeper:
    """Opens and saves the shards of one job."""

    def __init__(
        self, schema: pa.Schema, store: RunStore, *, inline_bytes: int, retain_batches: int, remember_drops: int,
        max_pairs: int = 0,
    ) -> None:  # fmt: skip
        self._schema = schema
        self._store = store
        self._inline_bytes = inline_bytes
        self._retain_batches = retain_batches
        self._remember_drops = remember_drops
        self._max_pairs = max_pairs
        self._mapped: OrderedDict[str, Run] = OrderedDict()
        self._tools: dict[str, Tools] = {}
        """By the identity of the family."""

    def open(self, family: FamilyPlan, manifest: Manifest, name: str, *, awaited: int = 0) -> Opened:
        """What the manifest holds of a family; empty where it holds nothing. `name` is the shard's, for errors.

        `awaited`: how many messages fill it. Until they have come, no drop is forgotten: the row may come after it.
        """
        tools = self._tools_of(family)
        state = manifest.families.get(family.identity)
        filling = awaited > (state.filled if state is not None else 0)
        remembered = max(self._remember_drops, _DROPS_WHILE_FILLING) if filling else self._remember_drops
        cap = self._max_pairs if family.kept.capped else 0
        shard = Shard(tools.plan, tools.schema, remember_drops=remembered, cap=cap, tools=tools)
        opened = Opened(family, shard, [0] * len(family.rules), unlisted=[0] * len(family.rules))
        if state is None:
            return opened
        opened.open, opened.filled, opened.cleared = list(state.open), state.filled, state.cleared
        opened.unlisted = list(state.unlisted)
        with damage_told(name):
            runs = []
            for saved in state.runs:
                run = self._run(shard.forest.serial(), saved)
                opened.saved[run.serial] = saved
                runs.append(run)
            shard.restore(runs, _tail(state.tail) if state.tail else None)
            shard.drops_held = state.drops
            shard.tally = Tally(**state.tally)
        return opened

    def _tools_of(self, family: FamilyPlan) -> Tools:
        tools = self._tools.get(family.identity)
        if tools is None:
            columns = [self._schema.field(column) for column in family.kept.columns]
            tools = self._tools[family.identity] = Tools(family.kept, pa.schema(columns))
        return tools

    def _run(self, serial: int, saved: SavedRun) -> Run:
        if saved.file is None:
            rows, order, *rest = saved.inline
            return _with_trees(serial, rows, order, rest, saved)
        fixed = self._mapped.get(saved.file.name)
        if fixed is None:
            content = self._store.read(saved.file)
            sections: list[Section] = [*unpacked(_RUN_FILE, saved.file.name, content, trusted=True)[1]]
            rows, order, *rest = sections
            fixed = _with_trees(0, rows, order, rest, SavedRun(saved.rows, saved.trees))
            self._mapped[saved.file.name] = fixed
            if len(self._mapped) > _FILES_MAPPED:
                self._mapped.popitem(last=False)
        self._mapped.move_to_end(saved.file.name)
        dead = TupleSet(len(fixed), BitMap.deserialize(bytes(saved.dead)) if saved.dead is not None else None)
        return Run(serial, fixed.table, fixed.order, fixed.trees, dead)

    def save(
        self, number: int, batch: int, before: Manifest, opened: list[Opened], over: Collection[str] = ()
    ) -> Manifest:
        """The manifest of a shard after a batch. Families that were not opened stay as they were; some are `over`."""
        families = {identity: state for identity, state in before.families.items() if identity not in over}
        after = Manifest(batch, families, list(before.retired))
        room = self._inline_bytes
        for one in opened:
            state = FamilyState([], None, one.open, one.shard.drops_held, asdict(one.shard.tally))
            state.filled, state.cleared, state.unlisted = one.filled, one.cleared, one.unlisted
            for run in one.shard.forest.runs:  # the smallest first
                saved = self._saved(f"{number:05d}/{batch:010d}-{one.family.identity[:8]}", run, one, room)
                room -= sum(map(len, saved.inline))
                state.runs.append(saved)
            state.runs.reverse()
            state.tail = _saved_tail(one.shard)
            after.families[one.family.identity] = state
        still = after.files()
        after.retired += [(batch, name) for name in sorted(before.files() - still)]
        self._forget(after, batch)
        self._unmap(f"{number:05d}/", after)
        return after

    def _saved(self, stem: str, run: Run, opened: Opened, room: int) -> SavedRun:
        """Where a run is saved: where it was, or inline if there is room, or in a new file."""
        dead = run.dead.bitmap.serialize() if run.dead.bitmap else None
        has_tree = [tree is not None for tree in run.trees]
        known = opened.saved.get(run.serial)
        if known is not None and known.file is not None:
            return SavedRun(len(run), has_tree, dead, known.file)
        sections: list[tuple[str, Section]]
        sections = [("run", body) for body in known.inline] if known is not None else run_sections(run)
        if sum(len(body) for _, body in sections) <= room:
            return SavedRun(len(run), has_tree, dead, None, [body for _, body in sections])
        return SavedRun(len(run), has_tree, dead, self._file(stem, run, sections))

    def _file(self, stem: str, run: Run, sections: list[tuple[str, Section]]) -> StoredFile:
        return self._store.write(stem, pieces(_RUN_FILE, {"rows": len(run)}, sections))

    def _unmap(self, prefix: str, manifest: Manifest) -> None:
        """Lets go of a shard's files that its manifest needs no longer; a mapping would keep their space."""
        live = manifest.live()
        for name in [name for name in self._mapped if name.startswith(prefix) and name not in live]:
            del self._mapped[name]
        self._store.evict(prefix, live)

    def _forget(self, manifest: Manifest, batch: int) -> None:
        """Deletes files that no batch to which Spark can return needs."""
        old = [name for since, name in manifest.retired if since <= batch - self._retain_batches]
        if old:
            gone = set(self._store.delete(old))
            manifest.retired = [(since, name) for since, name in manifest.retired if name not in gone]


def _with_trees(serial: int, rows: Section, order: Section, rest: list[Section], saved: SavedRun) -> Run:
    trees = iter(rest)
    return run_of(serial, rows, order, [next(trees) if there else None for there in saved.trees], saved.dead)


def _tail(saved: SavedTail) -> tuple[pa.RecordBatch, Ints, BitMap]:
    with pa.ipc.open_stream(pa.py_buffer(saved.table)) as reader:
        table = reader.read_next_batch()
    return table, np.frombuffer(saved.order, np.int64), BitMap.deserialize(bytes(saved.dead))


def _saved_tail(shard: Shard) -> SavedTail | None:
    tail = shard.forest.tail
    if not len(tail):
        return None
    order = tail.order[: tail.n].tobytes()
    return SavedTail(tail.n, ipc(tail.table), order, tail.dead.bitmap.serialize())
