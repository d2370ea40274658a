"""What must hold: after every commit, after files were collected, and in the end.

The truth is nested loops over the table at the published position (`tests.oracle`); nothing of the engine is in it but
how a key is written. Cost: the square of the rows for each rule, after each commit.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import TYPE_CHECKING, Any

from tests import oracle
from tests.detect.drawn import as_written
from tests.simulation.sinks import Violation
from weever_stream.detect.identity import json_value, plain
from weever_stream.detect.texts import written
from weever_stream.state import inspect
from weever_stream.state.manifest import Manifest
from weever_stream.stream.progress import PROGRESS

if TYPE_CHECKING:
    from tests.simulation.world import World

__all__ = ["Checks"]


class Checks:
    """Looks at a world."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._before: set[Violation] = set()
        """What was open after the last commit."""
        self._reasons_of: int | None = None
        """The batch whose reasons were looked at last."""

    def after_commit(self) -> None:
        """Sinks, shards and notes agree with the truth at the position that was published."""
        world, checkpoint = self._world, self._world.checkpoint
        noted = world.job.notes.read(PROGRESS)
        assert noted is not None
        position = json.loads(noted["position"])["units"]
        assert (noted["batch"], position) == (checkpoint.committed, checkpoint.offsets[checkpoint.committed])
        self._told_is_true(position)
        assert world.topic.open == world.log.open, "the topic is not what the log is"
        living = world.query.noted.living
        counts = Counter(rule for rule, _, _ in world.log.open.values() if rule in living)
        assert +Counter(noted["open"]) == counts, f"published as open: {noted['open']}, true: {counts}"
        if not world.damaged_states:
            held = self.held()
            assert held == counts, f"the shards hold {held}, true: {counts}"
        self.needed_files()
        if not world.disk.damaged and not world.damaged_states and world.chance.random.random() < 0.03:
            self.verified()

    def _told_is_true(self, position: int) -> None:
        """Of rules in force all is told, of those that are filled only what is true; of ended ones no more than was.

        A row that came late, after a newer one of its key, may count for a rule until that is filled with the newer one.
        """
        world = self._world
        noted, told, waiting = world.query.noted, set(world.log.open.values()), world.job.lane.waiting(world.checkpoint)
        coming = {file.fills for file in waiting}
        filling = {rule.name for one in noted.generations if one.number in coming for rule in one.rules}
        ended = {rule.name: rule.ended for rule in noted.rules if rule.name not in noted.living}
        truth, late = self.truth(position), set(map(key_text, world.feed.late_keys(position)))
        lawful = {one for one in told if one[0] not in ended}
        unsure = {one for one in lawful if one[0] in filling and not late.isdisjoint(one[1:])}
        assert_same(lawful - unsure | {one for one in truth if one[0] in filling}, truth, "the log")
        over = told - lawful
        assert over <= self._before, f"told of rules that have ended: {sorted(over - self._before, key=str)[:1]}"
        assert not over or None in coming, f"{len(over)} violations of rules that have ended stay open"
        # Once a batch, while the rules are those it was done with: one that is closed may be there again, changed.
        for violation, change, reason in world.log.last if self._reasons_of != world.checkpoint.committed else ():
            closed = ended.get(violation[0]) if change == "removed" else None
            assert reason == closed, f"{violation} is {change} because of {reason}, not of {closed}"
        self._before, self._reasons_of = told, world.checkpoint.committed

    def truth(self, position: int) -> set[Violation]:
        """The violations of the table at a position, of the rules in force."""
        world = self._world
        rules = [world.job.known[rule.name, rule.fingerprint] for rule in world.query.noted.living.values()]
        found = oracle.violations(as_written(rules), world.feed.table(position).values(), world.plan.key)
        return {(rule, str(key_text(left)), key_text(right)) for rule, left, right in found}

    def held(self) -> Counter[str]:
        """Open violations of every rule in force, as the manifests have them."""
        counts: Counter[str] = Counter()
        setup = self._world.query.setup
        for manifest in self._world.manifests().values():
            for family in setup.families:
                if state := manifest.families.get(family.identity):
                    for rule, n in zip(family.rules, state.open, strict=True):
                        if rule not in setup.ended:
                            counts[setup.rules[rule].rule.name] += max(n, 0)
        return +counts

    def verified(self) -> None:
        """Every invariant of every shard."""
        world = self._world
        keeper = world.query.cluster.worker(0).keeper
        wrong = list(inspect.verify(world.manifests(), world.query.setup.families, keeper))
        assert not wrong, wrong

    def needed_files(self) -> None:
        """Every file that a retained state needs is there, unless we took it."""
        world, checkpoint = self._world, self._world.checkpoint
        oldest = len(checkpoint.offsets) - 1 - world.plan.retain_batches
        for version in [version for version in checkpoint.versions if version < oldest]:
            del checkpoint.versions[version]
        there = world.disk.names() | world.disk.damaged.keys()
        for version, states in checkpoint.versions.items():
            for shard, saved in states.items():
                assert saved.live <= there, (
                    f"gone, and needed by shard {shard} at batch {version}: {saved.live - there}"
                )

    def only_needed_files(self) -> None:
        """Nothing is in the folder but what manifests name, and all that is live.

        A retired file may be gone: of a task that ran twice one attempt deleted it, the other could not and was taken.
        """
        manifests = self._world.manifests().values()
        named, live = ({name for one in manifests for name in which(one)} for which in (Manifest.files, Manifest.live))
        there = {name for name, _, _ in self._world.store.listed()}
        assert there <= named, f"left over: {there - named}"
        assert live <= there, f"missing: {live - there}"

    def everything(self) -> None:
        """All of the above, of a world that is at rest."""
        world = self._world
        assert world.checkpoint.position(world.checkpoint.committed) == len(world.feed.units)
        if world.checkpoint.committed >= 0:
            assert not world.job.lane.waiting(world.checkpoint), "the lane is not read to its end"
            self.after_commit()
        if world.chance.random.random() < 0.1:
            self.verified()


def key_text(key: Any) -> str | None:
    """A key as sinks have it."""
    if key is None:
        return None
    return written([json_value(part) for part in key]) if isinstance(key, tuple) else plain(key)


def assert_same(found: set[Violation], truth: set[Violation], what: str) -> None:
    """Fails with the difference."""
    missing, wrong = sorted(truth - found, key=str), sorted(found - truth, key=str)
    assert not missing, f"{what} lacks {len(missing)}, the first: {missing[0]}"
    assert not wrong, f"{what} has {len(wrong)} that are not true, the first: {wrong[0]}"
