"""What is in a checkpoint: shards, runs, rows, bytes, the dead, and files that nobody needs.

Works on manifests, wherever they were read from, and on the run store. Cost: linear in the manifests; `verify` opens
every run and asserts every invariant, which reads all of the state.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyroaring import BitMap

from weever_stream.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from weever_stream.detect.families import FamilyPlan
    from weever_stream.state.keeper import Keeper
    from weever_stream.state.manifest import FamilyState, Manifest, SavedRun
    from weever_stream.state.store import RunStore

__all__ = ["Held", "held", "orphans", "skew", "verify"]


_OURS = re.compile(r"[0-9]+/[A-Za-z0-9_.-]+\.(?:run|tmp)")
"""Names of run files, and of those that were still being written."""


@dataclass(frozen=True)
class Held:
    """What one shard holds of one family."""

    shard: int
    family: str
    batch: int
    """The last batch that touched the shard."""
    runs: int
    files: int
    rows: int
    dead: int
    inline_bytes: int
    file_bytes: int
    open: int


def held(manifests: Mapping[int, Manifest]) -> Iterator[Held]:
    """A line for each shard and family."""
    for shard, manifest in sorted(manifests.items()):
        for identity, state in manifest.families.items():
            yield _held(shard, manifest.batch, identity, state)


def _held(shard: int, batch: int, identity: str, state: FamilyState) -> Held:
    tail = state.tail
    bodies = [tail.table, tail.order, tail.dead] if tail else []
    dead = sum(_dead(run) for run in state.runs) + (len(BitMap.deserialize(bytes(tail.dead))) if tail else 0)
    return Held(
        shard=shard,
        family=identity,
        batch=batch,
        runs=len(state.runs) + (tail is not None),
        files=sum(run.file is not None for run in state.runs),
        rows=sum(run.rows for run in state.runs) + (tail.rows if tail else 0) - dead,
        dead=dead,
        inline_bytes=sum(len(body) for run in state.runs for body in run.inline) + sum(map(len, bodies)),
        file_bytes=sum(run.file.length for run in state.runs if run.file),
        open=sum(max(n, 0) for n in state.open),
    )


def _dead(run: SavedRun) -> int:
    return len(BitMap.deserialize(bytes(run.dead))) if run.dead is not None else 0


def skew(lines: Iterable[Held], shards: int) -> float:
    """How many times the average of all shards, empty ones too, the fullest holds; 1 where all hold the same."""
    rows: dict[int, int] = {}
    for line in lines:
        rows[line.shard] = rows.get(line.shard, 0) + line.rows
    total = sum(rows.values())
    return max(rows.values()) * shards / total if total else 1.0


def orphans(
    manifests: Iterable[Manifest], store: RunStore, older_than: float, retain_batches: int | None = None
) -> list[tuple[str, int]]:
    """Files that no manifest names, with their lengths: left by tasks that failed or ran twice.

    Those of a batch later than all manifests belong to one that is under way, however long it takes; younger ones than
    `older_than` seconds may. Both are left alone, and so is what no store of ours has written. Files that a shard lists
    as retired go after `retain_batches`: a shard that nothing comes to any more does not delete them itself.
    """
    known = list(manifests)
    newest = max((manifest.batch for manifest in known), default=-1)
    since = -1 if retain_batches is None else newest - retain_batches
    needed = {name for manifest in known for name in manifest.live()}
    needed |= {name for manifest in known for at, name in manifest.retired if at > since}
    before = time.time() - older_than
    return [
        (name, length)
        for name, length, changed in store.listed()
        if name not in needed and changed < before and _OURS.fullmatch(name) and _batch_of(name) <= newest
    ]


def _batch_of(name: str) -> int:
    """The batch that wrote a run file, from its name; what is none of ours belongs to no batch."""
    found = re.match(r"\d+/(\d+)-", name)
    return int(found[1]) if found else -1


def verify(
    manifests: Mapping[int, Manifest], families: Iterable[FamilyPlan], keeper: Keeper
) -> Iterator[tuple[int, str]]:
    """Opens every shard and asserts every invariant. Yields the shard and what is wrong with it."""
    plans = list(families)
    known = {family.identity for family in plans}
    for shard, manifest in sorted(manifests.items()):
        for identity in manifest.families.keys() - known:
            yield shard, f"family {identity} is not one of the rules'"
        for family in plans:
            try:
                keeper.open(family, manifest, f"the state of shard {shard}").shard._check()
            except StateError as error:
                yield shard, error.message
            except AssertionError as error:
                yield shard, f"family {family.identity}: {error}"
