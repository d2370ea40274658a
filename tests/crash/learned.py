"""The judge of learned rules: what the table of rule events adds up to, held to discovery on the table as it was then.

Read without a JVM, after every death of a driver. The comparisons are those of the first rows, as a learner has them.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from tests.crash.wrong import Wrong
from weever_stream.discover.hydra import find_rules
from weever_stream.discover.predicates import Options, comparisons_in, space_over
from weever_stream.storage import locate, open_delta, scan_delta

if TYPE_CHECKING:
    from tests.crash.world import World

__all__ = ["EVENTS", "check_learned", "learn_section", "rules_at"]

EVENTS = "rule_events"
"""The folder of the table."""
LEARNED = ("a", "b", "n", "c")
MOST = 3
"""Predicates of a rule: so that dozens come and go with every position."""


def learn_section(folder: Path) -> dict[str, Any]:
    """`learn:` of the job file."""
    sinks = [{"kind": "delta", "path": str(folder / EVENTS)}]
    return {"sinks": sinks, "columns": list(LEARNED), "cross": True, "max_predicates": MOST, "every": "20 ms"}


@cache
def _rules_of(first: str, now: str) -> frozenset[str]:
    tables = [_table(json.loads(rows)) for rows in (first, now)]
    _, comparisons, _, _ = comparisons_in(tables[0], Options(LEARNED))
    space = space_over(tables[1], comparisons)
    found = find_rules(space, most=MOST)
    assert found.exact
    return frozenset(space.rule(np.flatnonzero(rule)).rule.fingerprint for rule in found.rules)


def _table(rows: list[dict[str, Any]]) -> pa.Table:
    kinds = {"c": pa.string()}
    return pa.table({name: pa.array([row[name] for row in rows], kinds.get(name, pa.int64())) for name in LEARNED})


def rules_at(world: World, position: int) -> frozenset[str]:
    """The fingerprints of the rules that discovery finds in the table at a position."""
    first, now = (json.dumps(list(world.tables[at].values())) for at in (0, position))
    return _rules_of(first, now)


def check_learned(world: World, *, whole: bool = False) -> None:
    """Raises `Wrong` where what is told of rules is not the truth. `whole`: the last position must have been learned."""
    path = world.folder / EVENTS
    holding: set[str] = set()
    if (path / "_delta_log").exists():
        holding = _summed(world, path)
    note = world.checkpoint / "weever" / "learn" / "weever" / "progress.json"
    at = world._at(json.loads(note.read_text())["position"]) if note.exists() else -1
    if whole and at != world.last:
        raise Wrong("lost", f"the feed is at {world.last}, learned is {at}")
    if whole and holding != rules_at(world, world.last):
        raise Wrong("wrong", f"the rules that hold at {world.last} are others")


def _summed(world: World, path: Path) -> set[str]:
    """What holds after the last batch; after each of them it must be what discovery finds."""
    place = locate(path)
    rows = scan_delta(open_delta(place), place).to_table().to_pylist()
    holding: set[str] = set()
    for batch in sorted({row["batch_id"] for row in rows}):
        told = [row for row in rows if row["batch_id"] == batch]
        for row in sorted(told, key=lambda row: row["event"], reverse=True):  # drops first
            rule, comes = row["rule_fingerprint"], row["event"] == "added"
            if (rule in holding) is comes:
                raise Wrong("duplicated", f"batch {batch} tells {row['deny']} as {row['event']}, which it was")
            (holding.add if comes else holding.remove)(rule)
        [position] = {row["source_position"] for row in told}
        if holding != rules_at(world, world._at(position)):
            raise Wrong("wrong", f"the rules after batch {batch}, at {position}, are not those of the table")
    return holding
