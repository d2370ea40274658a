"""Rules that come, end and come back, and shards that become more or fewer, without Spark.

Catches: a change that overtakes the row which fills a family, and is undone by it; rows that are filled in and are not
there any more; a rule that stays and is touched; violations of an ended rule that stay open or are closed twice; a pair
that is told again, or forgotten, because its rows moved to other shards; a truncated table that is filled again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.detect.drawn import RULES, SCHEMA, small_runs
from tests.stream.simulated import Change, Simulation, change_frame, setup_of
from tests.stream.test_work import Feed, truth
from weever_stream.feeds.changes import CLEAR, DROP_ANYWHERE, PUT, PUT_ANYWHERE
from weever_stream.rules import Rule
from weever_stream.rules.bind import bind_all
from weever_stream.rules.types import schema_of
from weever_stream.state.manifest import Manifest
from weever_stream.state.noted import Generation, Noted, NotedRule
from weever_stream.state.revision import revise
from weever_stream.stream.recut import moved, recut
from weever_stream.stream.rescaling import _refuse_uncounted
from weever_stream.stream.routing import Router
from weever_stream.stream.setup import Setup


class World:
    """A job whose rules change, as `revising` changes them; its feed; and the truth."""

    def __init__(self, seed: int, names: Sequence[str], folder: Path, *, images: bool, late: bool, shards: int) -> None:
        self.feed = Feed(seed, images=images)
        self.random = self.feed.random
        self.folder, self.late = folder, late
        self.rules = [RULES[name] for name in names]
        born = Generation(0, tuple(NotedRule.of(rule) for rule in self.rules))
        self.noted = Noted("rows", "files", ("id",), shards, "4.2", SCHEMA, (born,))
        self.stream = Simulation(self.setup())
        self.waiting: list[tuple[int, bytes]] = []
        """Messages in the lane."""
        self.filling: set[str] = set()
        self.dropped: dict[int, int] = {}

    def setup(self) -> Setup:
        """As `saved.setup_of` makes it."""
        noted = self.noted
        plain = setup_of(
            [rule.rule({}) for rule in noted.rules], SCHEMA, ("id",), self.folder, shards=noted.shards, inline_bytes=2000,
            retain_batches=2, remember_drops=10_000 if self.late else 0,
        )  # fmt: skip
        return replace(
            plain,
            rules=bind_all([rule.rule({}) for rule in noted.rules], schema_of(SCHEMA)),
            columns=SCHEMA,
            generations={one.number: len(one.rules) for one in noted.generations},
            ended={number: rule.ended for number, rule in enumerate(noted.rules) if rule.ended is not None},
            fills={one.number: one.fills for one in noted.generations if one.fills},
            replaces={number: rule.replaces for number, rule in enumerate(noted.rules) if rule.replaces is not None},
        )

    def restart(self) -> None:
        self.stream.setup = self.setup()
        self.stream.restart()

    def step(self) -> None:
        """One batch: some changes, and some of what is in the lane, in any order."""
        self.random.shuffle(self.waiting)
        taken = self.random.randrange(len(self.waiting) + 1) if self.random.random() < 0.7 else 0
        lane, self.waiting = self.waiting[:taken], self.waiting[taken:]
        changes = self.feed.batch(self.random.randrange(0, 12))
        if self.late:
            changes = [({PUT: PUT_ANYWHERE, 0: DROP_ANYWHERE}.get(kind, kind), *rest) for kind, *rest in changes]
        self.stream.batch([change_frame(changes, SCHEMA)] if changes else [], lane)
        self.check()

    def clear(self) -> None:
        """The table is emptied."""
        self.feed.table.clear()
        self.feed.version += 1
        cleared: list[Change] = [(CLEAR, self.feed.version, {})]
        self.stream.batch([change_frame(cleared, SCHEMA)], [])
        self.check()

    def revise(self, rules: list[Rule]) -> None:
        """Another set of rules: first those that end, then those that come."""
        revision = revise(self.noted, rules)
        self.rules = rules
        self.noted = self.noted.ending(revision.reasons)
        self.restart()
        self.stream.batch(
            [], [(shard, Router(self.stream.setup).nothing().pack()) for shard in range(self.noted.shards)]
        )
        self.filling &= {rule.name for rule in rules}
        if not revision.filled:
            return
        self.noted = self.noted.adding([rule for rule in rules if rule.name in revision.filled], SCHEMA)
        self.filling |= set(revision.filled) if self.fill() else set()
        self.restart()

    def rebuild(self) -> None:
        """A rule is built again, and until all rows have come to a shard, what it had open there stays open."""
        self.settle()
        rule = self.random.choice(self.rules)
        self.noted = self.noted.rebuilding_again(rule, SCHEMA)
        old, new = next(iter(self.noted.rebuilding.items()))
        setup = self.setup()
        assert setup.family_of(new).meets_like(setup.family_of(old))
        self.fill()
        nothing = Router(self.setup()).nothing().pack()
        self.waiting += [(shard, nothing) for shard in range(self.noted.shards)]
        self.restart()
        self.check()

    def settle(self) -> None:
        """What is under way comes first; then rules that were built again have taken the place of the old ones."""
        if not self.noted.rebuilding:
            return
        self.stream.batch([], self.waiting)
        self.waiting = []
        self.check()
        self.noted = self.noted.settling("rule_rebuilt")
        self.restart()

    def fill(self) -> bool:
        """Puts the rows of the table into the lane, for the last generation. Whether there are any."""
        generation = self.noted.generations[-1]
        setup = self.setup()
        router, rows = Router(setup, generation.number), list(self.feed.table.values())
        self.random.shuffle(rows)
        kind = PUT_ANYWHERE if self.late else PUT
        sent = [
            (shard, message.pack())
            for at in range(0, len(rows), 5)
            for shard, message in router.route(
                change_frame([(kind, self.feed.version, row) for row in rows[at : at + 5]], SCHEMA)
            )
        ]
        counts = Counter(shard for shard, _ in sent)
        fills = tuple(counts[shard] for shard in range(self.noted.shards))
        self.noted = replace(self.noted, generations=(*self.noted.generations[:-1], replace(generation, fills=fills)))
        self.waiting += sent
        return bool(sent)

    def rescale(self, shards: int) -> None:
        """Another number of shards, as `rescaling` does it: all that is under way comes first."""
        self.settle()
        self.stream.batch([], self.waiting)
        self.waiting = []
        self.check()
        found = {shard: Manifest.load(state, str(shard)) for shard, state in self.stream.states.items()}
        _refuse_uncounted(found)  # nothing is flooded here
        before = self.stream.setup
        everyone = range(max(shards, self.noted.shards))
        self.noted = recut(self.noted, before, shards)
        after = self.setup()
        nothing = Router(after).nothing().pack()
        lane = [*((shard, nothing) for shard in everyone), *moved(before, after, found)]
        self.restart()
        open_before = self.stream.open.copy()
        assert self.stream.batch([], lane) == [], "what moves is not told"
        assert self.stream.open == open_before
        self.check()

    def check(self) -> None:
        true = truth(self.rules, self.feed.table, ("id",))
        done = self.filling if not self.waiting else set()
        self.filling = self.filling - done
        shown = set(self.stream.open)
        assert shown <= true, "what is shown is true"
        assert {one for one in true - shown if one[0] not in self.filling} == set(), "what is filled is complete"
        names = {rule.name for rule in self.rules}
        assert {rule for rule, n in self.stream.counts().items() if n} <= names


@settings(deadline=None, max_examples=15)
@given(
    seed=st.integers(0, 2**32),
    steps=st.lists(
        st.sampled_from(["step", "step", "step", "revise", "rebuild", "rescale", "restart", "clear"]),
        min_size=4,
        max_size=14,
    ),
    images=st.booleans(),
    late=st.booleans(),
)
def test_rules_and_shards_change_under_a_feed(
    tmp_path_factory: pytest.TempPathFactory, seed: int, steps: list[str], images: bool, late: bool
) -> None:
    names = sorted(RULES)
    drawn = Feed(seed, images=True).random
    world = World(
        seed,
        drawn.sample(names, 3),
        tmp_path_factory.mktemp("runs"),
        images=images,
        late=late,
        shards=drawn.choice([1, 2, 4]),
    )
    with small_runs():
        world.step()
        for step in steps:
            if step == "revise":
                world.revise([RULES[name] for name in world.random.sample(names, world.random.randrange(1, 5))])
            elif step == "rescale":
                world.rescale(world.random.choice([1, 2, 3, 4, 5]))
            else:
                getattr(world, step)()
        while world.waiting:
            world.step()
        world.step()
        assert not world.filling


def test_a_rule_of_the_same_name_that_denies_something_else_closes_and_fills(tmp_path: Path) -> None:
    one, other = (replace(RULES[name], name="rule") for name in ("dependency", "crossed"))
    world = World(3, ["dependency"], tmp_path, images=True, late=False, shards=4)
    world.revise([one])
    for rule in (other, one, other):
        with small_runs():
            world.step()
            world.revise([rule])
            while world.waiting:
                world.step()
    assert any(name == "rule" for name, _, _ in world.stream.open)


def test_an_ended_rule_is_closed_with_its_reason_once(tmp_path: Path) -> None:
    world = World(4, ["dependency", "no_equality"], tmp_path, images=True, late=False, shards=4)
    with small_runs():
        for _ in range(6):
            world.step()
        held = {one for one in world.stream.open if one[0] == "no_equality"}
        assert held, "there is something to close"
        kept: list[Any] = [one for one in world.stream.open if one[0] == "dependency"]
        world.revise([RULES["dependency"]])
        assert set(world.stream.open) == set(kept)
        told = world.stream.batch([], [(shard, Router(world.stream.setup).nothing().pack()) for shard in range(4)])
        assert told == [], "what is over is over"


@pytest.mark.parametrize("name", sorted(RULES))
def test_a_rule_that_is_built_again_closes_nothing_and_tells_nothing_again(tmp_path: Path, name: str) -> None:
    world = World(6, [name], tmp_path, images=True, late=False, shards=4)
    with small_runs():
        for _ in range(8):
            world.step()
        held = world.stream.open.copy()
        world.rebuild()
        told: list[Any] = []
        while world.waiting:
            told += world.stream.batch([], [world.waiting.pop()])
            assert world.stream.open == held
        assert told == []
        assert world.stream.counts()[name] == len(held)
        world.settle()
        for _ in range(4):
            world.step()


def test_what_was_wrong_is_put_right_when_a_rule_is_built_again(tmp_path: Path) -> None:
    """Of a state that lacks rows, the missing violations are added, and those of rows that are gone are removed."""
    world = World(7, ["dependency"], tmp_path, images=True, late=False, shards=2)
    with small_runs():
        for _ in range(8):
            world.step()
        table, true = world.feed.table, set(world.stream.open)
        lost = next(iter(true))[1]
        key = next(key for key in table if str(key) == lost)
        world.stream.batch([change_frame([(0, world.feed.version, table[key])], SCHEMA)])  # nobody has dropped it
        ghost = {**next(iter(table.values())), "id": 10**6, "c": "a ghost"}
        world.stream.batch([change_frame([(PUT, world.feed.version, ghost)], SCHEMA)])
        wrong = set(world.stream.open)
        assert wrong - true
        assert true - wrong
        world.noted = world.noted.rebuilding_again(RULES["dependency"], SCHEMA)
        world.fill()
        world.waiting += [(shard, Router(world.setup()).nothing().pack()) for shard in range(2)]
        world.restart()
        told = world.stream.batch([], world.waiting)
        assert {
            (one["rule"], one["left_key"], one["right_key"]) for one in told if one["change"] == "added"
        } == true - wrong
        assert set(world.stream.open) == true
        assert len(told) == len(true ^ wrong)
